"""What the evidence means: findings, bottleneck, verdict."""
