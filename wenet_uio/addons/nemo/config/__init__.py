"""Configurations of NeMo as keys of Config: loaders, tokenizer, trainer, optimizer and schedule."""
