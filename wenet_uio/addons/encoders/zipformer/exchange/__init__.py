"""Export and conversion of a Zipformer: above the packages that it uses, and loaded by name."""
