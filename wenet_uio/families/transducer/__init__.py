"""The transducer (RNN-T): predictor, joint network, loss and searches."""
