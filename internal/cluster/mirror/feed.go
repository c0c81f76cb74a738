package mirror

import (
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// last is the object of a deletion, whether its last state was seen or not.
func last(o any) any {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return o
}

// nodeFeed takes nodes. It, as the others, is what a reflector fills.
type nodeFeed struct{ m *Mirror }

func (f nodeFeed) Add(o any) error { return f.Update(o) }

func (f nodeFeed) Update(o any) error {
	n, ok := o.(*v1.Node)
	if !ok {
		return wrong("a node", o)
	}
	f.m.nodes.hear()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.putNode(n)
	return nil
}

func (f nodeFeed) Delete(o any) error {
	n, ok := last(o).(*v1.Node)
	if !ok {
		return wrong("a node", o)
	}
	f.m.nodes.hear()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if is := f.m.node[n.Name]; is != nil && is.UID == n.UID {
		delete(f.m.node, n.Name)
		delete(f.m.beat, n.Name)
		f.m.notify()
	}
	return nil
}

func (f nodeFeed) Replace(list []any, _ string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	here := make(map[string]bool, len(list))
	for _, o := range list {
		n, ok := o.(*v1.Node)
		if !ok {
			return wrong("a node", o)
		}
		here[n.Name] = true
		f.m.setNode(f.m.keep.node(n))
	}
	for name := range f.m.node {
		if !here[name] {
			delete(f.m.node, name)
			delete(f.m.beat, name)
		}
	}
	f.m.nodes.replaced()
	f.m.notify()
	return nil
}

func (f nodeFeed) Resync() error                    { return nil }
func (f nodeFeed) Bookmark(string) error            { f.m.nodes.hear(); return nil }
func (f nodeFeed) Transformer() cache.TransformFunc { return f.m.keep.transform }

// putNode puts a node in its place, unless it is older than the one that is there: an answer may be newer than what a watch tells. The lock
// is held.
func (m *Mirror) putNode(n *v1.Node) {
	n = m.keep.node(n)
	if was := m.node[n.Name]; was == nil || was.UID != n.UID || !older(n.ResourceVersion, was.ResourceVersion) {
		m.setNode(n)
	}
}

// setNode takes a node whatever its version is: after etcd was restored from a backup all are older than what was told before, and a list
// is what is there. The lock is held.
func (m *Mirror) setNode(n *v1.Node) {
	was := m.node[n.Name]
	m.node[n.Name] = n
	if was == nil || was.UID != n.UID || !sameBeats(was, n) {
		m.beat[n.Name] = time.Now()
	}
	if was == nil || was.UID != n.UID || !sameNode(was, n) {
		m.notify()
	}
}

// leaseFeed takes Leases. Nobody waits for one.
type leaseFeed struct{ m *Mirror }

func (f leaseFeed) Add(o any) error { return f.Update(o) }

func (f leaseFeed) Update(o any) error {
	l, ok := o.(*coordination.Lease)
	if !ok {
		return wrong("a lease", o)
	}
	f.m.leases.hear()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.putLease(l)
	return nil
}

func (f leaseFeed) Delete(o any) error {
	l, ok := last(o).(*coordination.Lease)
	if !ok {
		return wrong("a lease", o)
	}
	f.m.leases.hear()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	delete(f.m.lease, l.Name)
	delete(f.m.renew, l.Name)
	return nil
}

func (f leaseFeed) Replace(list []any, _ string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	here := make(map[string]bool, len(list))
	for _, o := range list {
		l, ok := o.(*coordination.Lease)
		if !ok {
			return wrong("a lease", o)
		}
		here[l.Name] = true
		f.m.setLease(f.m.keep.lease(l))
	}
	for name := range f.m.lease {
		if !here[name] {
			delete(f.m.lease, name)
			delete(f.m.renew, name)
		}
	}
	f.m.leases.replaced()
	f.m.notify()
	return nil
}

func (f leaseFeed) Resync() error                    { return nil }
func (f leaseFeed) Bookmark(string) error            { f.m.leases.hear(); return nil }
func (f leaseFeed) Transformer() cache.TransformFunc { return f.m.keep.transform }

// putLease puts a Lease in its place likewise. The lock is held.
func (m *Mirror) putLease(l *coordination.Lease) {
	l = m.keep.lease(l)
	if was := m.lease[l.Name]; was == nil || was.UID != l.UID || !older(l.ResourceVersion, was.ResourceVersion) {
		m.setLease(l)
	}
}

// setLease takes a Lease as setNode does a node.
func (m *Mirror) setLease(l *coordination.Lease) {
	if was := m.lease[l.Name]; was == nil || !was.Spec.RenewTime.Equal(l.Spec.RenewTime) {
		m.renew[l.Name] = time.Now()
	}
	m.lease[l.Name] = l
}

// podFeed takes pods.
type podFeed struct{ m *Mirror }

func (f podFeed) Add(o any) error { return f.Update(o) }

func (f podFeed) Update(o any) error {
	p, ok := o.(*v1.Pod)
	if !ok {
		return wrong("a pod", o)
	}
	f.m.pods.hear()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.putPod(p)
	return nil
}

func (f podFeed) Delete(o any) error {
	p, ok := last(o).(*v1.Pod)
	if !ok {
		return wrong("a pod", o)
	}
	f.m.pods.hear()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.dropPod(p.UID)
	return nil
}

func (f podFeed) Replace(list []any, _ string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	here := make(map[types.UID]bool, len(list))
	for _, o := range list {
		p, ok := o.(*v1.Pod)
		if !ok {
			return wrong("a pod", o)
		}
		here[p.UID] = true
		f.m.setPod(f.m.keep.pod(p))
	}
	for uid := range f.m.pod {
		if !here[uid] {
			f.m.dropPod(uid)
		}
	}
	f.m.pods.replaced()
	f.m.notify()
	return nil
}

func (f podFeed) Resync() error                    { return nil }
func (f podFeed) Bookmark(string) error            { f.m.pods.hear(); return nil }
func (f podFeed) Transformer() cache.TransformFunc { return f.m.keep.transform }

// putPod puts a pod in its place likewise, if it is bound and not over. The lock is held.
func (m *Mirror) putPod(p *v1.Pod) {
	p = m.keep.pod(p)
	if was := m.pod[p.UID]; was == nil || !older(p.ResourceVersion, was.ResourceVersion) {
		m.setPod(p)
	}
}

// setPod takes a pod as setNode does a node.
func (m *Mirror) setPod(p *v1.Pod) {
	was := m.pod[p.UID]
	if was != nil && was.Spec.NodeName != p.Spec.NodeName {
		m.dropPod(p.UID)
		was = nil
	}
	if p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		m.dropPod(p.UID)
		return
	}
	m.pod[p.UID] = p
	of := m.on[p.Spec.NodeName]
	if i := slices.Index(of, was); was != nil && i >= 0 {
		of[i] = p
	} else {
		m.on[p.Spec.NodeName] = append(of, p)
	}
	if m.matters(p) {
		m.notify()
	}
}

// dropPod takes a pod away. The lock is held.
func (m *Mirror) dropPod(uid types.UID) {
	was := m.pod[uid]
	if was == nil {
		return
	}
	delete(m.pod, uid)
	of := slices.DeleteFunc(m.on[was.Spec.NodeName], func(p *v1.Pod) bool { return p.UID == uid })
	if m.on[was.Spec.NodeName] = of; len(of) == 0 {
		delete(m.on, was.Spec.NodeName)
	}
	if m.matters(was) {
		m.notify()
	}
}

// matters reports whether anything may depend on a pod: whether its node has a taint that evicts, or is not ready.
func (m *Mirror) matters(p *v1.Pod) bool {
	n := m.node[p.Spec.NodeName]
	if n == nil {
		return false
	}
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Effect == v1.TaintEffectNoExecute {
			return true
		}
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status != v1.ConditionTrue
		}
	}
	return true
}
