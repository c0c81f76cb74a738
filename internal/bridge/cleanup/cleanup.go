// Package cleanup takes away what bridges have written to a cluster: the conditions of nodes, and
// the Leases that tell their load. It is for an operator who takes jettison away, with rights that
// no bridge has. Statuses of pods that were evicted stay, for they are true, and events go by
// themselves.
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
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// API is what of the cluster's is read and written.
type API interface {
	EachNode(ctx context.Context, each func(*v1.Node) error) error
	PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error)
	Leases(ctx context.Context, namespace string) ([]coordinationv1.Lease, error)
	DeleteLease(ctx context.Context, namespace, name string) error
}

// Run takes everything away, and writes a line for each node. What fails is said at the end, and
// the rest is done all the same.
func Run(ctx context.Context, c API, namespace string, out io.Writer) error {
	var failed []error
	nodes, leases := 0, 0
	err := c.EachNode(ctx, func(n *v1.Node) error {
		gone, err := removeConditions(ctx, c, n)
		if kube.Classify(err) == kube.NotFound { // the node went meanwhile, and its conditions with it
			return nil
		}
		if err != nil {
			failed = append(failed, err)
			return ctx.Err()
		}
		if len(gone) > 0 {
			nodes++
			fmt.Fprintf(out, "node %s: conditions %s are gone\n", n.Name, strings.Join(gone, ", "))
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
		if _, ours := l.Annotations[api.LoadAnnotation]; !ours {
			continue
		}
		if err := c.DeleteLease(ctx, l.Namespace, l.Name); err != nil &&
			kube.Classify(err) != kube.NotFound {
			failed = append(failed, err)
			continue
		}
		leases++
	}
	fmt.Fprintf(out, "%d nodes and %d leases were cleaned\n", nodes, leases)
	if n := len(failed) - maxErrors; n > 0 {
		failed = append(failed[:maxErrors], fmt.Errorf("and %d more", n))
	}
	return errors.Join(failed...)
}

// mostSaid are the failures that are said, of as many as there are nodes.
const maxErrors = 5

// conditions takes the bridges' conditions from a node, and names them.
func removeConditions(ctx context.Context, c API, n *v1.Node) (gone []string, err error) {
	var remove []map[string]string
	for _, is := range n.Status.Conditions {
		if strings.HasPrefix(string(is.Type), verdict.ConditionPrefix) {
			gone = append(gone, string(is.Type))
			remove = append(remove, map[string]string{"$patch": "delete", "type": string(is.Type)})
		}
	}
	if len(remove) == 0 {
		return nil, nil
	}
	// of strings alone
	body, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": remove}})
	_, err = c.PatchNodeStatus(ctx, n.Name, body)
	return gone, err
}
