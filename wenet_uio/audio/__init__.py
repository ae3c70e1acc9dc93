"""Reading and writing audio: headers, decoding, encoding, and the check for completeness."""
