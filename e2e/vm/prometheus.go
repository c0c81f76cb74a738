package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Files of Prometheus on the guest.
const (
	prometheusLog    = "/var/log/prometheus.log"
	PrometheusFolder = "/etc/prometheus/"
	prometheusURL    = "http://127.0.0.1:9090"
)

// StartPrometheus runs Debian's Prometheus with prometheus.yaml of PrometheusFolder, in the network of
// the node, and waits until it is ready. It ends with the node.
func (n *Node) StartPrometheus(ctx context.Context) error {
	if err := n.uploadDebian(ctx, "prometheus", "usr/bin/prometheus"); err != nil {
		return fmt.Errorf("start prometheus: %w", err)
	}
	_, err := n.Start(ctx, prometheusLog, "/usr/local/bin/prometheus", "--config.file="+PrometheusFolder+"prometheus.yaml",
		"--storage.tsdb.path=/var/lib/prometheus", "--web.listen-address="+strings.TrimPrefix(prometheusURL, "http://"))
	if err != nil {
		return fmt.Errorf("start prometheus: %w", err)
	}
	return n.Eventually(ctx, importDeadline, "prometheus is ready", func(ctx context.Context) error {
		if _, err := n.Shell(ctx, "busybox wget -q -O /dev/null "+prometheusURL+"/-/ready"); err != nil {
			return fmt.Errorf("%w; its log ends with:\n%s", err, n.PrometheusLog())
		}
		return nil
	})
}

// PrometheusLog returns the last lines that Prometheus printed.
func (n *Node) PrometheusLog() string { return n.Tail(prometheusLog, 20) }

// AskPrometheus decodes the data of a response of Prometheus' API: path is that below /api/v1, with
// its query.
func (n *Node) AskPrometheus(ctx context.Context, path string, data any) error {
	// wget has exit code 1 for the status 400 of a wrong expression, too.
	text, err := n.Shell(ctx, "busybox wget -q -O - '"+prometheusURL+"/api/v1"+path+"'")
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return fmt.Errorf("prometheus: GET %s: %w", path, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus: GET %s: %s", path, answer.Error)
	}
	return nil
}
