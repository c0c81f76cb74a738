package model

import (
	"encoding/binary"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// taintIndex numbers the distinct taints of all nodes. Pods may have thousands of tolerations and
// nodes hundreds of taints: each toleration is compared with the taints of its key once, not for
// each node.
type taintIndex struct {
	all     []*v1.Taint
	numbers map[taintKey]int32
	byKey   map[string][]int32
	byValue map[taintKey][]int32 // without the effect
}

type taintKey struct {
	key, value string
	effect     v1.TaintEffect
}

func newTaintIndex() *taintIndex {
	return &taintIndex{numbers: map[taintKey]int32{}, byKey: map[string][]int32{},
		byValue: map[taintKey][]int32{}}
}

// add returns the numbers of the taints of a node.
func (x *taintIndex) add(n *v1.Node) []int32 {
	if len(n.Spec.Taints) == 0 {
		return nil
	}
	out := make([]int32, len(n.Spec.Taints))
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		key := taintKey{t.Key, t.Value, t.Effect}
		number, ok := x.numbers[key]
		if !ok {
			number = int32(len(x.all))
			x.all, x.numbers[key] = append(x.all, t), number
			x.byKey[t.Key] = append(x.byKey[t.Key], number)
			key.effect = ""
			x.byValue[key] = append(x.byValue[key], number)
		}
		out[i] = number
	}
	return out
}

// candidates calls do with the numbers of all taints that a toleration may match.
func (x *taintIndex) candidates(t *v1.Toleration, do func(number int32)) {
	var list []int32
	switch {
	case t.Key == "":
		for i := range x.all {
			do(int32(i))
		}
	case t.Operator == "" || t.Operator == v1.TolerationOpEqual:
		list = x.byValue[taintKey{key: t.Key, value: t.Value}]
	default:
		list = x.byKey[t.Key]
	}
	for _, number := range list {
		do(number)
	}
}

// ToleratedTaints are the taints of a cluster's nodes that some tolerations match.
type ToleratedTaints struct {
	bits []uint64 // by number; nil: none
}

func (x *taintIndex) tolerated(tolerations []v1.Toleration) (out ToleratedTaints) {
	if len(x.all) == 0 || len(tolerations) == 0 {
		return out
	}
	out.bits = make([]uint64, (len(x.all)+63)/64)
	for i := range tolerations {
		t := &tolerations[i]
		x.candidates(t, func(number int32) {
			if !out.has(number) && t.ToleratesTaint(klog.Logger{}, x.all[number], true) {
				out.bits[number/64] |= 1 << (number % 64)
			}
		})
	}
	return out
}

func (s *ToleratedTaints) has(number int32) bool {
	return s.bits != nil && s.bits[number/64]&(1<<(number%64)) != 0
}

// Key returns a text that is equal for pods that tolerate the same taints of the cluster.
func (s *ToleratedTaints) Key() string {
	var out []byte
	for _, word := range s.bits {
		out = binary.LittleEndian.AppendUint64(out, word)
	}
	return strings.TrimRight(string(out), "\x00")
}

// Tolerated returns the taints of all nodes that a pod tolerates.
func (c *Cluster) Tolerated(p *Pod) ToleratedTaints {
	return c.taints.tolerated(p.Spec.Tolerations)
}

// HardTaint reports whether a taint keeps new pods off a node.
func HardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

// Untolerated returns the first taint of a node that counts selects and that is not tolerated; nil:
// none.
func (n *Node) Untolerated(tolerated *ToleratedTaints, counts func(*v1.Taint) bool) *v1.Taint {
	for i, number := range n.taints {
		if t := &n.Spec.Taints[i]; !tolerated.has(number) && counts(t) {
			return t
		}
	}
	return nil
}
