"""Audio files: headers, decoding, encoding, completeness."""
