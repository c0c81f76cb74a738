package model

import "slices"

// move is a pod that was added or removed.
type move struct {
	pod      *Pod
	from, to *Node
	put      bool
	// index of a removed pod in the lists of its node and its namespace; -1: in no list
	nodeIndex, namespaceIndex int
}

// Moves returns the number of pods added and removed since New.
func (c *Cluster) Moves() int { return len(c.moves) }

// Undo restores the state in which Moves returned moves, with the same order of pods on nodes and
// in namespaces.
func (c *Cluster) Undo(moves int) {
	for len(c.moves) > moves {
		m := &c.moves[len(c.moves)-1]
		if m.put {
			c.undoPut(m)
		} else {
			c.undoRemove(m)
		}
		c.moves = c.moves[:len(c.moves)-1]
	}
}

// undoPut removes a pod from the ends of lists: later moves were undone before.
func (c *Cluster) undoPut(m *move) {
	p := m.pod
	c.pods[p.Namespace] = c.pods[p.Namespace][:len(c.pods[p.Namespace])-1]
	c.index.remove(p)
	c.unindexTerms(p)
	if n := m.to; n != nil {
		n.account(p, -1)
		n.Pods = n.Pods[:len(n.Pods)-1]
		c.change(n)
	}
	p.Node = m.from
}

func (c *Cluster) undoRemove(m *move) {
	p := m.pod
	if m.namespaceIndex >= 0 {
		c.pods[p.Namespace] = slices.Insert(c.pods[p.Namespace], m.namespaceIndex, p)
		c.index.put(p)
		c.indexTerms(p)
	}
	p.Node = m.from
	if n := m.from; n != nil {
		if m.nodeIndex >= 0 {
			n.Pods = slices.Insert(n.Pods, m.nodeIndex, p)
		}
		n.account(p, 1)
		c.change(n)
	}
}
