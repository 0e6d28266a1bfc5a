"""Deploy: files for what stands around Mileage: Prometheus rules, Grafana dashboards."""
