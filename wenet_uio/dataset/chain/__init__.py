"""Chain: operators from a waveform and its text to a padded batch."""
