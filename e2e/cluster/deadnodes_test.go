package cluster

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// At default rates a zone waits 10 s for its next NoExecute taint. taintSlack is the time that a
// slow machine may need in addition.
const (
	taintPeriod = 10 * time.Second
	taintSlack  = 10 * time.Second
)

// A cloud controller deletes 300 dead nodes as soon as they are Unknown, while the program taints
// them at its default rates. The program forgets each of them and no longer writes to it. A node
// that dies afterwards is tainted in time.
func TestCloudControllerDeletesDeadNodes(t *testing.T) {
	const all, dead = 600, 300 // half of each zone
	log, args := audited(t)
	c := Start(t, Options{Args: map[string][]string{APIServer: args}})
	program := installNodes(t, c)
	f := newFleet(t, c, all, 0, scaleGrace)
	config := filepath.Join(moduleRoot(t), "deploy/cluster/config.yaml")
	r := c.replica(program, "nodes", nodeAccount, "nodes", "--config="+config, "--mode=replace", "--others-disabled", "--replace-quiet=1s")
	c.awaitLeader(r)
	deleted := map[string]bool{}
	for _, s := range f.nodes[:dead] {
		deleted[s.name] = true
	}
	c.deleteUnknown(deleted)
	f.silence(f.nodes[:dead])
	c.Eventually(scaleGrace+startDeadline, "the dead nodes are deleted", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err == nil && len(list.Items) != all-dead {
			err = fmt.Errorf("%d nodes exist", len(list.Items))
		}
		return err
	})
	c.Eventually(startDeadline, "the program has forgotten the deleted nodes", func(context.Context) error {
		status, complaint, ok := r.status()
		ghosts := 0
		for _, n := range status.Nodes {
			if deleted[n.Name] {
				ghosts++
			}
		}
		if !ok || ghosts > 0 || len(status.Nodes) != all-dead {
			return fmt.Errorf("%d nodes known, %d of them deleted %s", len(status.Nodes), ghosts, complaint)
		}
		return nil
	})
	forgotten := time.Now()

	last := f.nodes[dead : dead+1]
	f.silence(last)
	if f.await(last, scaleGrace+startDeadline, func(s *sailor) bool { return !s.executed.IsZero() }) == 0 {
		t.Errorf("a node that died after the others has no NoExecute taint after %v", scaleGrace+startDeadline)
	}
	f.mu.Lock()
	delay := last[0].executed.Sub(last[0].renewed.Add(f.grace))
	f.mu.Unlock()
	if delay > taintPeriod+taintSlack {
		t.Errorf("the node that died last is tainted %v after its silence was due, want at most %v", delay, taintPeriod+taintSlack)
	}
	patches, missed, late := map[string]int{}, 0, 0
	for _, q := range log.of(nodeAccount.user()) {
		if q.Verb != "patch" || q.ObjectRef.Resource != "nodes" || !deleted[q.ObjectRef.Name] {
			continue
		}
		patches[q.ObjectRef.Name]++
		if q.ResponseStatus.Code == http.StatusNotFound {
			missed++
		}
		if q.RequestReceivedTimestamp.After(forgotten) {
			late++
			t.Errorf("a deleted node is patched %v after all were forgotten: %v", q.RequestReceivedTimestamp.Sub(forgotten), q)
		}
	}
	most := 0
	for _, n := range patches {
		most = max(most, n)
	}
	if len(patches) != dead {
		t.Errorf("%d of %d dead nodes were patched, want all", len(patches), dead)
	}
	t.Logf("patches of one deleted node: at most %d; after its deletion: %d, after all were forgotten: %d; last node tainted after %v",
		most, missed, late, delay.Round(time.Millisecond))
	for _, why := range f.wrongTaints() {
		t.Error(why)
	}
}

// deleteUnknown acts as a cloud controller whose machines are gone: until the test ends it deletes
// each of these nodes as soon as it is Unknown.
func (c *Cluster) deleteUnknown(gone map[string]bool) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		c.t.Fatal(err)
	}
	w, err := c.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		c.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*v1.Node)
			if !ok || !gone[n.Name] || !slices.ContainsFunc(n.Status.Conditions, func(x v1.NodeCondition) bool {
				return x.Type == v1.NodeReady && x.Status == v1.ConditionUnknown
			}) {
				continue
			}
			err := c.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				c.t.Errorf("delete a dead node: %v", err)
			}
		}
	})
	c.t.Cleanup(func() {
		cancel()
		w.Stop()
		running.Wait()
	})
}
