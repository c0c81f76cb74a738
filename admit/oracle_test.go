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

// What follows decides by living through a pod's life, moment by moment, in whole thousandths and without the helpers.

// milli is a quantity in thousandths.
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

// wants is the request of a container, the limit where none is given, and whether it says anything.
func wants(r *v1.ResourceRequirements, name v1.ResourceName) (*big.Int, bool) {
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		if q, ok := list[name]; ok {
			return milli(q), true
		}
	}
	return new(big.Int), false
}

// lifelong is the most that a pod's containers have at any moment of its life: each init container in its turn, with the sidecars that were
// begun, and then all that stay.
func lifelong(p *v1.Pod, name v1.ResourceName) (most *big.Int, said bool) {
	most, running := new(big.Int), new(big.Int)
	moment := func(now *big.Int) {
		if now.Cmp(most) > 0 {
			most = now
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		v, ok := wants(&c.Resources, name)
		said = said || ok
		moment(new(big.Int).Add(running, v))
		if c.RestartPolicy != nil {
			running = new(big.Int).Add(running, v)
		}
	}
	for i := range p.Spec.Containers {
		v, ok := wants(&p.Spec.Containers[i].Resources, name)
		said = said || ok
		running = new(big.Int).Add(running, v)
	}
	moment(running)
	return most, said
}

// naive is what a pod takes of a node: in thousandths of cpu, or in whole units of all else.
func naive(p *v1.Pod, name v1.ResourceName) *big.Int {
	total, said := lifelong(p, name)
	huge := strings.HasPrefix(string(name), "hugepages-")
	if r := p.Spec.Resources; r != nil && (name == "cpu" || name == "memory" || huge) {
		request, ok := r.Requests[name]
		limit, limited := r.Limits[name]
		// A pod with limits has a request for each resource that its containers request, and beyond that one for each limit. With no limit
		// of its own its huge pages are limited as the containers' are.
		switch {
		case ok:
			total = milli(request)
		case limited && (huge || !said):
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

// hugeLimits is lifelong for limits alone; nil: no container has one.
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
	if v, said := lifelong(bare, name); said {
		return v
	}
	return nil
}

// naiveShort are the names of what is too little, by adding up all that is there.
func naiveShort(node *v1.Node, others []*v1.Pod, asks *v1.Pod) (out []string) {
	if q := node.Status.Allocatable["pods"]; int64(len(others)) >= q.Value() {
		out = append(out, "OutOfpods")
	}
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"} {
		need := naive(asks, name)
		if need.Sign() == 0 {
			continue
		}
		sum := new(big.Int).Set(need)
		for _, p := range others {
			sum.Add(sum, naive(p, name))
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

// Room is there exactly where a naive count of the whole node says so, and every resource that is short is named, in order.
func TestFitIsWhatANaiveCountSays(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		node, others, asks := drawCase(t)
		n, p := stateOf(node, others), PodAttributes{Pod: asks, Manifest: true}
		before := asks.DeepCopy()
		var got []string
		short := shortages(askingOf(p).requests, n.others(askingOf(p)), &n)
		for i := range short {
			got = append(got, short[i].failure().Reason)
		}
		if want := naiveShort(node, others, asks); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if len(short) > 0 {
			refused++
		}
		Failures(p, n)
		Preempt(p, n)
		if !reflect.DeepEqual(before, asks) {
			t.Fatal("the pod was changed")
		}
	})
	if refused == 0 {
		t.Error("no pod was short of anything")
	}
}

// Ports collide exactly where a table of all that are bound, address by address, has one twice.
func TestPortsAreWhatATableSays(t *testing.T) {
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
			t.Fatalf("ports taken: %v, want %v", got, want)
		}
	})
}

// The taints that a pod tolerates are those of the library, whose function takes a logger.
func TestTolerationsAreTheLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taint := v1.Taint{Key: one(t, "key", "a", "b"), Value: one(t, "value", "", "1", "2"), Effect: one(t, "effect", v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule)}
		toleration := v1.Toleration{Key: one(t, "tkey", "", "a", "b"), Value: one(t, "tvalue", "", "1", "2"),
			Operator: one(t, "operator", "", v1.TolerationOpEqual, v1.TolerationOpExists, v1.TolerationOpGt, v1.TolerationOpLt, "Strange"),
			Effect:   one(t, "teffect", "", v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule)}
		want := toleration.ToleratesTaint(klog.Background(), &taint, false)
		if got := tolerates([]v1.Toleration{toleration}, &taint); got != want {
			t.Fatalf("%+v of %+v: %v", toleration, taint, got)
		}
	})
}

// Less of what speaks against a pod never refuses it: an unknown fact, a pod less, a condition less.
func TestWhatIsUnknownRefusesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, others, asks := drawCase(t)
		n, p := stateOf(node, others), PodAttributes{Pod: asks, Manifest: true}
		n.Conditions = one(t, "conditions", nil, []string{"MemoryPressure"}, []string{"DiskPressure", "MemoryPressure"})
		was := Failures(p, n)
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
			is := Failures(p, less)
			if len(was) == 0 && len(is) > 0 {
				t.Fatalf("%d: %+v", i, is)
			}
		}
	})
}
