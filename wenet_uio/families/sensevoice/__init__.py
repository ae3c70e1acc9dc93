"""SenseVoice-small: CTC with queries of language and form; it only decodes."""
