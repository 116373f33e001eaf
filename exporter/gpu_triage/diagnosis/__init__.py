"""The playbook's verdict on a host: runs the sampler for a while and judges the published samples."""
