// Package cleanup removes from a cluster the node conditions of bridges and the Leases
// with the nodes' load. It is for an operator who removes jettison, and needs permissions that no
// bridge has. Statuses of evicted pods stay because they are true; events expire.
package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// API is the subset of the Kubernetes API that Run uses.
type API interface {
	EachNode(ctx context.Context, each func(*v1.Node) error) error
	PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error)
	Leases(ctx context.Context, namespace string) ([]coordinationv1.Lease, error)
	DeleteLease(ctx context.Context, namespace, name string) error
}

// Run removes the conditions and Leases and writes a line for each changed node to out. It
// continues after errors and returns them at the end. With dryRun it only reads and prints.
func Run(ctx context.Context, c API, namespace string, dryRun bool, out io.Writer) error {
	removedText, last := "removed", "cleaned %s, deleted %s\n"
	if dryRun {
		c = reader{c}
		removedText, last = "would remove", "would clean %s, would delete %s; nothing changed\n"
	}
	var failed []error
	nodes, leases := 0, 0
	err := c.EachNode(ctx, func(n *v1.Node) error {
		removed, err := removeConditions(ctx, c, n)
		if kube.Classify(err) == kube.NotFound { // the node was deleted, with its conditions
			return nil
		}
		if err != nil {
			failed = append(failed, err)
			return ctx.Err()
		}
		if len(removed) > 0 {
			nodes++
			fmt.Fprintf(out, "node %s: %s conditions %s\n", n.Name, removedText,
				strings.Join(removed, ", "))
		}
		return nil
	})
	if err != nil {
		failed = append(failed, err)
	}
	all, err := c.Leases(ctx, namespace)
	if err != nil {
		failed = append(failed, err)
	}
	for i := range all {
		l := &all[i]
		if _, hasLoad := l.Annotations[api.LoadAnnotation]; !hasLoad {
			continue
		}
		if err := c.DeleteLease(ctx, l.Namespace, l.Name); err != nil &&
			kube.Classify(err) != kube.NotFound {
			failed = append(failed, err)
			continue
		}
		leases++
	}
	fmt.Fprintf(out, last, output.Count(nodes, "node"), output.Count(leases, "lease"))
	if n := len(failed) - maxErrors; n > 0 {
		failed = append(failed[:maxErrors], fmt.Errorf("and %d more", n))
	}
	return errors.Join(failed...)
}

// reader is an API whose writes do nothing.
type reader struct{ API }

func (reader) PatchNodeStatus(context.Context, string, []byte) (*v1.Node, error) { return nil, nil }

func (reader) DeleteLease(context.Context, string, string) error { return nil }

// maxErrors bounds the errors that are returned: there may be one for each node.
const maxErrors = 5

// removeConditions removes the bridges' conditions from a node and returns their types.
func removeConditions(ctx context.Context, c API, n *v1.Node) (gone []string, err error) {
	var remove []map[string]string
	for _, condition := range n.Status.Conditions {
		if strings.HasPrefix(string(condition.Type), verdict.ConditionPrefix) {
			gone = append(gone, string(condition.Type))
			remove = append(remove, map[string]string{"$patch": "delete", "type": string(condition.Type)})
		}
	}
	if len(remove) == 0 {
		return nil, nil
	}
	// cannot fail: strings only
	body, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": remove}})
	_, err = c.PatchNodeStatus(ctx, n.Name, body)
	return gone, err
}
