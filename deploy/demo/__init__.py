"""The whole alerting path on one machine: a simulated bad night, Prometheus, Alertmanager and a pager."""
