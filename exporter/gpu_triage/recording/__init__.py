"""A host as a recording: what NVML answered and what the kernel's files said, to be read again elsewhere."""
