"""What reads other people's corpora, and labels of a trained model."""
