package taint

import (
	"hash/maphash"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// OperatorUnread is the operator of the only toleration of a pod whose tolerations the caller did
// not keep, because they are too many. The API server accepts no pod with this operator. Step
// requests such tolerations while a taint concerns the pod.
const OperatorUnread v1.TolerationOperator = "Unread"

// NotKept returns the only toleration that the caller keeps of such a pod. Its value identifies the
// list: a pod that changes otherwise need not be read again.
func NotKept(tolerations []v1.Toleration) v1.Toleration {
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range tolerations {
		t := &tolerations[i]
		seconds := "-"
		if t.TolerationSeconds != nil {
			seconds = strconv.FormatInt(*t.TolerationSeconds, 10)
		}
		for _, text := range []string{t.Key, string(t.Operator), t.Value, string(t.Effect), seconds} {
			_, _ = h.WriteString(text) // never fails
			_ = h.WriteByte(0)
		}
	}
	return v1.Toleration{Operator: OperatorUnread, Value: strconv.FormatUint(h.Sum64(), 16)}
}

var seed = maphash.MakeSeed()

// Unread reports whether these are the tolerations of a pod whose tolerations were not kept.
func Unread(tolerations []v1.Toleration) bool {
	return len(tolerations) == 1 && tolerations[0].Operator == OperatorUnread
}

// Read requests the tolerations of a pod. The caller reads the pod and passes the tolerations that
// Select returns to EndRead.
type Read struct {
	Namespace, Name string
	UID             types.UID
	Taints          []v1.Taint // the NoExecute taints of the node
}

// reading holds the tolerations of a pod that were read.
type reading struct {
	list        string     // the value of NotKept; empty: not read
	taints      []v1.Taint // for which they were selected
	tolerations []v1.Toleration
	attempt     cluster.Attempt
}

// Select returns the tolerations that decide on the taints, in their order.
func Select(taints []v1.Taint, tolerations []v1.Toleration) (out []v1.Toleration) {
	var at []int
	for i := range taints {
		t := &taints[i]
		at = append(at, matchIndex(t, tolerations))
		if key := counterpart[t.Key]; key != "" {
			at = append(at, matchIndex(&v1.Taint{Key: key, Effect: t.Effect}, tolerations))
		}
	}
	slices.Sort(at)
	for _, i := range slices.Compact(at) {
		if i >= 0 {
			out = append(out, tolerations[i])
		}
	}
	return out
}

// tolerationsOf returns the tolerations of a pod that decide on taints; known is false if they must
// be read first.
func (c *Core) tolerationsOf(p *v1.Pod, taints []v1.Taint) (tolerations []v1.Toleration,
	known bool) {
	if !Unread(p.Spec.Tolerations) {
		return p.Spec.Tolerations, true
	}
	r := c.reads[p.UID]
	if r == nil || r.list == "" || r.list != p.Spec.Tolerations[0].Value {
		return nil, false
	}
	for i := range taints {
		if !slices.ContainsFunc(r.taints, func(t v1.Taint) bool {
			return t.Key == taints[i].Key && t.Value == taints[i].Value
		}) {
			return nil, false
		}
	}
	return r.tolerations, true
}

// requestRead adds a Read to the actions, unless one is in flight or backing off. Until it ends,
// the pod stays.
func (s *step) requestRead(p *v1.Pod, taints []v1.Taint) {
	if old, scheduled := s.pending[p.UID]; scheduled {
		s.created[p.UID], s.scheduled[p.UID] = s.createdAt(s.now, p), old
	}
	r := s.reads[p.UID]
	if r == nil {
		r = &reading{}
		s.reads[p.UID] = r
	}
	if r.attempt.Begin(s.now) {
		s.out.Reads = append(s.out.Reads, Read{Namespace: p.Namespace, Name: p.Name, UID: p.UID,
			Taints: taints})
		return
	}
	cluster.Earliest(&s.out.Next, r.attempt.Next(s.now))
}

// EndRead records the result of a Read. list is the value of NotKept for the tolerations that were
// read; empty: the read failed.
func (c *Core) EndRead(now time.Time, read *Read, list string, selected []v1.Toleration) {
	r := c.reads[read.UID]
	if r == nil {
		return
	}
	if r.attempt.End(now, list != ""); list != "" {
		r.list, r.taints, r.tolerations = list, read.Taints, selected
	}
}
