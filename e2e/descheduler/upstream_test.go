// Package descheduler compares the descheduler 0.36.0 with this project's plans on the same
// clusters, and attributes every difference to a documented improvement
// (docs/operate/descheduling.md). It is a separate module that no program links.
//
//	plugins_test.go  the descheduler's plugins, and how it reads a policy
//	upstream_test.go a cycle of the descheduler on objects that are in memory
//	cluster_test.go  random clusters
//	pods_test.go     random pods
//	policy_test.go   random policies
//	state_test.go    the states of a plan, eviction by eviction
//	takes_test.go    which nodes accept a pod, without this project's model
//	better_test.go   where a strategy would reach its goal
//	explain_test.go  the improvements, each with the rule that is checked
//	follow_test.go   what follows from the improvements, where more than one is at work
//	invariants_test.go rules that a plan obeys, whatever the descheduler does
//	oracle_test.go   the comparison
//	scale_test.go    time and memory of both by size
//	program_test.go  time and memory of both programs
package descheduler

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/descheduler/pkg/api"
	"sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	podutil "sigs.k8s.io/descheduler/pkg/descheduler/pod"
	"sigs.k8s.io/descheduler/pkg/features"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	"sigs.k8s.io/descheduler/pkg/framework/profile"

	"jettison/cluster/deschedule"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	register()
	os.Exit(m.Run())
}

// went is one eviction: namespace/name, and the strategy that requested it.
type went struct{ pod, strategy string }

func (w went) id() string { return w.pod + " by " + w.strategy }

// cycle is one cycle of the descheduler. Its caches are filled by hand, and an eviction removes the
// pod from them immediately, as in its dry run. In a real cluster that happens some milliseconds
// later.
type cycle struct {
	policy  *api.DeschedulerPolicy
	factory informers.SharedInformerFactory
	evictor *evictions.PodEvictor
	client  *fake.Clientset
	pods    cache.Indexer
	assign  podutil.GetPodsAssignedToNodeFunc
	refused map[string]bool // evictions answered with 429: of pods, or of one strategy's pods
	asIs    bool            // pods are listed in the order of the cache
	stay    bool            // evicted pods stay in the caches
	out     []went
	by      map[went]string // the profile that requested an eviction
}

func newCycle(policy *api.DeschedulerPolicy, refused map[string]bool) (*cycle, error) {
	c := &cycle{policy: policy, client: &fake.Clientset{}, refused: refused, by: map[went]string{}}
	c.client.AddReactor("create", "pods", c.evict)
	c.factory = informers.NewSharedInformerFactory(c.client, 0)
	informer := c.factory.Core().V1().Pods().Informer()
	c.pods = informer.GetIndexer()
	var err error
	if c.assign, err = podutil.BuildGetPodsAssignedToNodeFunc(informer); err != nil {
		return nil, err
	}
	gates := features.DefaultMutableFeatureGate
	c.evictor, err = evictions.NewPodEvictor(context.Background(), c.client, &events.FakeRecorder{}, informer, gates,
		evictions.NewOptions().WithMaxPodsToEvictPerNode(policy.MaxNoOfPodsToEvictPerNode).
			WithMaxPodsToEvictPerNamespace(policy.MaxNoOfPodsToEvictPerNamespace).WithMaxPodsToEvictTotal(policy.MaxNoOfPodsToEvictTotal))
	return c, err
}

// evict is the API server's answer to an eviction.
func (c *cycle) evict(action core.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	e := action.(core.CreateActionImpl).Object.(*policyv1.Eviction)
	key := e.Namespace + "/" + e.Name
	by, _, _ := strings.Cut(strings.TrimPrefix(e.Annotations["reason"], "triggered by "), ":")
	profile, strategy, _ := strings.Cut(by, "/")
	w := went{key, strategy}
	if c.refused[key] || c.refused[w.id()] {
		return true, nil, errors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	}
	pod, ok, err := c.pods.GetByKey(key)
	if err != nil || !ok { // a pod of two owners is evicted a second time
		return true, nil, errors.NewNotFound(v1.Resource("pods"), e.Name)
	}
	c.out, c.by[w] = append(c.out, w), profile
	if c.stay {
		return true, nil, nil
	}
	return true, nil, c.pods.Delete(pod)
}

// listed returns the pods of a node in an order. The descheduler returns them in map order. If its
// strategies do not sort them, or find two pods equal, its order is random: here it is that of this
// project's plans.
func (c *cycle) listed(lastFirst bool) podutil.GetPodsAssignedToNodeFunc {
	return func(node string, filter podutil.FilterFunc) ([]*v1.Pod, error) {
		pods, err := c.assign(node, filter)
		if c.asIs {
			return pods, err
		}
		slices.SortFunc(pods, firstToGo)
		if lastFirst {
			slices.Reverse(pods)
		}
		return pods, err
	}
}

func firstToGo(a, b *v1.Pod) int {
	priority := func(p *v1.Pod) int64 {
		if p.Spec.Priority == nil {
			return -1 << 40
		}
		return int64(*p.Spec.Priority)
	}
	asks := func(p *v1.Pod) int {
		if _, ok := p.Annotations["descheduler.alpha.kubernetes.io/prefer-no-eviction"]; ok {
			return 1
		}
		return 0
	}
	class := func(p *v1.Pod) int {
		return slices.Index([]v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}, p.Status.QOSClass)
	}
	return cmp.Or(cmp.Compare(priority(a), priority(b)), cmp.Compare(class(a), class(b)), cmp.Compare(asks(a), asks(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(keyOf(a), keyOf(b)))
}

func keyOf(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// step is one strategy of one profile.
type step struct {
	balance bool
	run     func(context.Context, []*v1.Node) error
}

// steps returns the strategies in their order: the deschedule plugins of every profile, then the
// balance plugins of every one. Each is a profile of its own with the same evictor, so that each
// may list its pods in its own order.
func (c *cycle) steps() (out []step, err error) {
	for _, balance := range []bool{false, true} {
		for i, p := range c.policy.Profiles {
			names := p.Plugins.Deschedule.Enabled
			if balance {
				names = p.Plugins.Balance.Enabled
			}
			for j, name := range names {
				one := *p.DeepCopy()
				one.Plugins.Deschedule.Enabled, one.Plugins.Balance.Enabled = nil, nil
				if balance {
					one.Plugins.Balance.Enabled = []string{name}
				} else {
					one.Plugins.Deschedule.Enabled = []string{name}
				}
				made, err := profile.NewProfile(context.Background(), one, pluginregistry.PluginRegistry, profile.WithClientSet(c.client),
					profile.WithSharedInformerFactory(c.factory), profile.WithPodEvictor(c.evictor),
					profile.WithGetPodsAssignedToNodeFnc(c.listed(name == deschedule.RemoveDuplicates)),
					profile.WithProfileInstanceID(fmt.Sprint(i, "-", j, "-", balance)))
				if err != nil {
					return nil, err
				}
				out = append(out, step{balance, func(ctx context.Context, nodes []*v1.Node) error {
					status := made.RunDeschedulePlugins
					if balance {
						status = made.RunBalancePlugins
					}
					return status(ctx, nodes).Err
				}})
			}
		}
	}
	return out, nil
}

// fill puts objects into the caches.
func (c *cycle) fill(s *deschedule.Snapshot) {
	add := func(i cache.Indexer, o any) {
		if err := i.Add(o); err != nil {
			panic(err) // an object without a name
		}
	}
	for _, p := range s.Pods {
		add(c.pods, p)
	}
	for _, n := range s.Nodes {
		add(c.factory.Core().V1().Nodes().Informer().GetIndexer(), n)
	}
	for _, n := range s.Namespaces {
		add(c.factory.Core().V1().Namespaces().Informer().GetIndexer(), n)
	}
	for _, claim := range s.Claims {
		add(c.factory.Core().V1().PersistentVolumeClaims().Informer().GetIndexer(), claim)
	}
	for _, b := range s.Budgets {
		add(c.factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer(), b)
	}
}

// nodes returns the ready nodes that the policy selects, by name: the descheduler has them in map
// order.
func (c *cycle) nodes(s *deschedule.Snapshot) (out []*v1.Node, err error) {
	selector := labels.Everything()
	if c.policy.NodeSelector != nil {
		if selector, err = labels.Parse(*c.policy.NodeSelector); err != nil {
			return nil, err
		}
	}
	for _, n := range s.Nodes {
		if nodeutil.IsReady(n) && selector.Matches(labels.Set(n.Labels)) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// upstream returns a cycle after its end. With fewer than two ready nodes it evicts nothing, like
// the descheduler.
func upstream(t testing.TB, policy *api.DeschedulerPolicy, s *deschedule.Snapshot, refused map[string]bool) *cycle {
	t.Helper()
	c, err := newCycle(policy, refused)
	if err != nil {
		t.Fatal(err)
	}
	c.play(t, s)
	return c
}

// evictable returns the pods that the evictor of any profile of a policy allows to be evicted, as
// the descheduler itself decides.
func evictable(t testing.TB, policy *api.DeschedulerPolicy, s *deschedule.Snapshot) map[string]bool {
	t.Helper()
	c, err := newCycle(everybody(policy), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.stay = true // otherwise earlier evictions would reduce the replicas of later pods
	c.play(t, s)
	out := map[string]bool{}
	for _, w := range c.out {
		out[w.pod] = true
	}
	return out
}

func (c *cycle) play(t testing.TB, s *deschedule.Snapshot) {
	t.Helper()
	steps, err := c.steps()
	if err != nil {
		t.Fatal(err)
	}
	c.fill(s)
	nodes, err := c.nodes(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) < 2 {
		return
	}
	for _, step := range steps {
		if err := step.run(context.Background(), nodes); err != nil {
			t.Fatal(err)
		}
	}
}
