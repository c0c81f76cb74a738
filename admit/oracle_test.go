package admit

import (
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

// The functions below compute requests by simulating a pod's life, step by step, in whole
// thousandths and without the helpers.

// milli returns a quantity in thousandths.
func milli(q resource.Quantity) *big.Int {
	text := q.AsDec().String()
	whole, fraction, _ := strings.Cut(text, ".")
	fraction = strings.TrimRight(fraction, "0")
	n, ok := new(big.Int).SetString(whole+(fraction + "000")[:3], 10)
	if !ok || len(fraction) > 3 {
		panic(text)
	}
	return n
}

// requestOf returns the request of a container, or the limit if it has no request, and whether
// either is set.
func requestOf(r *v1.ResourceRequirements, name v1.ResourceName) (*big.Int, bool) {
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		if q, ok := list[name]; ok {
			return milli(q), true
		}
	}
	return new(big.Int), false
}

// lifelong returns the most that a pod's containers request at any moment: each init container in
// turn with the sidecars started before it, and then all containers that keep running.
func lifelong(p *v1.Pod, name v1.ResourceName) (most *big.Int, set bool) {
	most, running := new(big.Int), new(big.Int)
	moment := func(now *big.Int) {
		if now.Cmp(most) > 0 {
			most = now
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		v, ok := requestOf(&c.Resources, name)
		set = set || ok
		moment(new(big.Int).Add(running, v))
		if c.RestartPolicy != nil {
			running = new(big.Int).Add(running, v)
		}
	}
	for i := range p.Spec.Containers {
		v, ok := requestOf(&p.Spec.Containers[i].Resources, name)
		set = set || ok
		running = new(big.Int).Add(running, v)
	}
	moment(running)
	return most, set
}

// naive returns the requests of a pod: in thousandths of cpu, or in whole units of other resources.
func naive(p *v1.Pod, name v1.ResourceName, manifest bool) *big.Int {
	total, set := lifelong(p, name)
	huge := strings.HasPrefix(string(name), "hugepages-")
	if r := p.Spec.Resources; r != nil && (name == "cpu" || name == "memory" || huge) {
		request, ok := r.Requests[name]
		limit, limited := r.Limits[name]
		// An object with limits has a request for each resource that its containers request, and else
		// one for each limit. Without a pod-level limit its huge pages have the sum of the containers'
		// limits.
		switch {
		case ok:
			total = milli(request)
		case manifest:
		case limited && (huge || !set):
			total = milli(limit)
		case huge && len(r.Requests)+len(r.Limits) > 0:
			if limits := hugeLimits(p, name); limits != nil {
				total = limits
			}
		}
	}
	if q, ok := p.Spec.Overhead[name]; ok {
		total = new(big.Int).Add(total, milli(q))
	}
	if name == "cpu" {
		return total
	}
	up := new(big.Int).Add(total, big.NewInt(999))
	return up.Div(up, big.NewInt(1000))
}

// hugeLimits returns lifelong for limits alone; nil: no container has one.
func hugeLimits(p *v1.Pod, name v1.ResourceName) *big.Int {
	bare := &v1.Pod{}
	only := func(list []v1.Container) (out []v1.Container) {
		for _, c := range list {
			c.Resources.Requests = nil
			out = append(out, c)
		}
		return out
	}
	bare.Spec.Containers, bare.Spec.InitContainers = only(p.Spec.Containers), only(p.Spec.InitContainers)
	if v, set := lifelong(bare, name); set {
		return v
	}
	return nil
}

// naiveShort returns the reasons for missing resources by adding up all requests.
func naiveShort(node *v1.Node, others []*v1.Pod, asks *v1.Pod, manifest bool) (out []string) {
	if q := node.Status.Allocatable["pods"]; int64(len(others)) >= q.Value() {
		out = append(out, "OutOfpods")
	}
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"} {
		need := naive(asks, name, manifest)
		if need.Sign() == 0 {
			continue
		}
		sum := new(big.Int).Set(need)
		for _, p := range others {
			sum.Add(sum, naive(p, name, true))
		}
		has := milli(node.Status.Allocatable[name])
		if name != "cpu" {
			has.Div(has, big.NewInt(1000))
		}
		if sum.Cmp(has) > 0 {
			out = append(out, "OutOf"+string(name))
		}
	}
	return out
}

// A pod fits exactly if a naive sum of the whole node fits, and every resource that is short is
// reported, in order.
func TestFitMatchesNaiveSum(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		node, others, asks := drawCase(t)
		n, p := stateOf(node, others), PodAttributes{Pod: asks, Manifest: rapid.Bool().Draw(t, "manifest")}
		before := asks.DeepCopy()
		var got []string
		short := shortages(incoming(p).requests, n.others(incoming(p)), &n)
		for i := range short {
			got = append(got, short[i].failure().Reason)
		}
		if want := naiveShort(node, others, asks, p.Manifest); !slices.Equal(got, want) {
			t.Fatalf("reasons for missing resources = %v, want %v", got, want)
		}
		if len(short) > 0 {
			refused++
		}
		Failures(p, n)
		Preempt(p, n)
		if !reflect.DeepEqual(before, asks) {
			t.Fatal("a decision changed the pod object")
		}
	})
	if refused == 0 {
		t.Error("no generated pod lacked a resource")
	}
}

// Ports conflict exactly if a table of all bound ports, address by address, contains one twice.
func TestPortsMatchTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, others, asks := drawCase(t)
		n := stateOf(&v1.Node{}, others)
		type bound struct {
			ip, protocol string
			port         int32
		}
		bind := func(p *v1.Pod) map[bound]bool {
			out := map[bound]bool{}
			containers := slices.Clone(p.Spec.Containers)
			for _, c := range p.Spec.InitContainers {
				if c.RestartPolicy != nil {
					containers = append(containers, c)
				}
			}
			for _, c := range containers {
				for _, q := range c.Ports {
					b := bound{q.HostIP, string(q.Protocol), q.HostPort}
					if b.port == 0 && p.Spec.HostNetwork {
						b.port = q.ContainerPort
					}
					if b.port == 0 {
						continue
					}
					if b.protocol == "" {
						b.protocol = "TCP"
					}
					ips := []string{b.ip}
					if b.ip == "" || b.ip == "0.0.0.0" {
						ips = []string{"10.0.0.1", "10.0.0.2", "any other"}
					}
					for _, b.ip = range ips {
						out[b] = true
					}
				}
			}
			return out
		}
		want := false
		mine := bind(asks)
		for _, p := range others {
			for b := range bind(p) {
				want = want || mine[b]
			}
		}
		if got := slices.ContainsFunc(Failures(PodAttributes{Pod: asks, Manifest: true}, n), func(f Failure) bool {
			return f.Reason == "NodePorts"
		}); got != want {
			t.Fatalf("port conflict = %v, want %v", got, want)
		}
	})
}

// tolerates returns the same as the function of the library, which needs a logger.
func TestTolerationsMatchLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taint := v1.Taint{Key: one(t, "key", "a", "b"), Value: one(t, "value", "", "1", "2"), Effect: one(t, "effect", v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule)}
		toleration := v1.Toleration{Key: one(t, "tkey", "", "a", "b"), Value: one(t, "tvalue", "", "1", "2"),
			Operator: one(t, "operator", "", v1.TolerationOpEqual, v1.TolerationOpExists, v1.TolerationOpGt, v1.TolerationOpLt, "Strange"),
			Effect:   one(t, "teffect", "", v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule)}
		want := toleration.ToleratesTaint(klog.Background(), &taint, false)
		if got := tolerates([]v1.Toleration{toleration}, &taint); got != want {
			t.Fatalf("toleration %+v of taint %+v = %v, want %v", toleration, taint, got, want)
		}
	})
}

// Removing a fact, a pod or a condition never causes a rejection.
func TestUnknownFactsRejectNoPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, others, asks := drawCase(t)
		n, p := stateOf(node, others), PodAttributes{Pod: asks, Manifest: true}
		n.Conditions = one(t, "conditions", nil, []string{"MemoryPressure"}, []string{"DiskPressure", "MemoryPressure"})
		before := Failures(p, n)
		for i, forget := range []func(*NodeState){
			func(n *NodeState) { n.Name = "" },
			func(n *NodeState) { n.Labels = nil },
			func(n *NodeState) { n.Taints = nil },
			func(n *NodeState) { n.Conditions = nil },
			func(n *NodeState) { n.Sysctls = nil },
			func(n *NodeState) { n.Pods = nil },
			func(n *NodeState) {
				n.Allocatable = maps.Clone(n.Allocatable)
				delete(n.Allocatable, one[v1.ResourceName](t, "resource", "cpu", "memory", "pods", "hugepages-2Mi"))
			},
		} {
			less := n
			forget(&less)
			after := Failures(p, less)
			if len(before) == 0 && len(after) > 0 {
				t.Fatalf("failures after removing fact %d = %+v, want none", i, after)
			}
		}
	})
}
