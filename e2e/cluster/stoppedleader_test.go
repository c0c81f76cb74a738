package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The leader is stopped for twice the duration of its Lease, while it evicts the pods of silent
// nodes.
const (
	stopPeriod  = 30 * time.Second
	allNodes    = 24
	silentNodes = 8
	podsEvicted = 6 // of each silent node
)

// A leader is stopped by SIGSTOP in the middle of its writes, JETTISON_TRIALS times; 30 stops take 22
// minutes. Meanwhile the silent nodes report again, and the next leader removes their taints. When
// the stopped process continues, the API server accepts no write of it, not even to the Lease.
func TestStoppedLeaderWritesNothing(t *testing.T) {
	log, args := audited(t)
	c := Start(t, Options{Args: map[string][]string{APIServer: args}})
	program := installNodes(t, c)
	var names []string
	for i := range allNodes {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	s := &stopping{Cluster: c, t: t, log: log, members: c.addMembers(names...), silent: names[:silentNodes]}
	// The rate of requests is so low that writes wait for it when the process is stopped.
	slow := nodesArgs(t, "--kube-api-qps=20", "--kube-api-burst=20")
	leader, other := c.replica(program, "one", nodeAccount, slow...), c.replica(program, "two", nodeAccount, slow...)
	if c.awaitLeader(leader, other) == other {
		leader, other = other, leader
	}
	stops := trialsEach(t)
	for i := range stops {
		s.stop(i, leader, other)
		leader, other = other, leader
	}
	t.Logf("%d stops of %v: writes after a stop accepted by the API server: %d, rejected: %d", stops, stopPeriod, s.accepted, s.rejected)
}

// stopping counts what leaders wrote after they were stopped.
type stopping struct {
	*Cluster
	t                  *testing.T
	log                *audit
	members            *members
	silent             []string
	accepted, rejected int
}

// stop stops the leader in the middle of its evictions and lets it continue when other leads.
func (s *stopping) stop(i int, leader, other *replica) {
	s.t.Helper()
	pods := 0
	for _, node := range s.silent {
		for j := range podsEvicted {
			s.place(fmt.Sprintf("p-%d-%s-%d", i, node, j), node, 0, 0)
			pods++
		}
	}
	s.Eventually(workloadDeadline, "all pods are ready", func(ctx context.Context) error {
		if n := len(s.pods(ctx, podReady)); n < pods {
			return fmt.Errorf("%d of %d pods are ready", n, pods)
		}
		return nil
	})
	s.members.silence(s.silent...)
	evicted := 1 + 3*i%16 // another moment for each stop
	s.Eventually(startDeadline, fmt.Sprintf("the leader has evicted %d pods", evicted), func(ctx context.Context) error {
		if n := pods - len(s.pods(ctx, stays)); n < evicted {
			return fmt.Errorf("%d pods are evicted", n)
		}
		return nil
	})
	s.Pause(leader.name)
	began := time.Now()
	s.members.resume(s.silent...)
	s.awaitLeader(other)
	for _, node := range s.silent {
		s.awaitTaints(node)
	}
	<-time.After(time.Until(began.Add(stopPeriod)))
	left := s.pods(s.t.Context(), stays)
	if len(left) == 0 {
		s.t.Errorf("stop %d: no pod is left to evict, want the leader stopped before", i)
	}
	continued := time.Now()
	s.Resume(leader.name)
	s.awaitFollower(leader, continued)
	for _, r := range s.log.of(nodeAccount.user()) {
		switch {
		case !r.by(leader.identity) || !r.writes() || r.RequestReceivedTimestamp.Before(continued):
		case r.ResponseStatus.Code < 300:
			s.accepted++
			s.t.Errorf("stop %d: accepted %v after the process continued: %v", i, r.RequestReceivedTimestamp.Sub(continued), r)
		default:
			s.rejected++
		}
	}
	if now := s.pods(s.t.Context(), stays); len(now) != len(left) {
		s.t.Errorf("stop %d: %d pods are left after the process continued, want %d", i, len(now), len(left))
	}
	for _, node := range s.silent {
		s.awaitTaints(node)
	}
	o := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := s.Client.CoreV1().Pods("default").DeleteCollection(s.t.Context(), o, metav1.ListOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// awaitFollower waits until a replica does not lead and has read the Lease twice since it continued:
// by then it has sent whatever it was about to write.
func (s *stopping) awaitFollower(r *replica, since time.Time) {
	s.t.Helper()
	s.Eventually(startDeadline, r.name+" follows", func(context.Context) error {
		_, complaint, leads := r.status()
		reads := 0
		for _, q := range s.log.of(nodeAccount.user()) {
			if q.by(r.identity) && q.Verb == "get" && q.ObjectRef.Resource == "leases" && q.RequestReceivedTimestamp.After(since) {
				reads++
			}
		}
		if leads || reads < 2 {
			return fmt.Errorf("leads: %v, answers %q; %d reads of the Lease", leads, complaint, reads)
		}
		return nil
	})
}

func stays(p *v1.Pod) bool { return p.DeletionTimestamp == nil }

// pods returns the names of the pods in namespace default for which a predicate is true.
func (s *stopping) pods(ctx context.Context, is func(*v1.Pod) bool) (out []string) {
	s.t.Helper()
	list, err := s.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		if is(&list.Items[i]) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}
