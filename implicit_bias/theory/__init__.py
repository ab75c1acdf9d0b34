"""Theory beside the core, which never imports it: one file a subject."""
