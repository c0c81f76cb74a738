package model

import "slices"

// move is a pod that was put somewhere, or taken away.
type move struct {
	pod     *Pod
	was, to *Node
	put     bool
	// Of one that was taken away: its place in the lists of its node and of its namespace; -1: it was
	// in none.
	onNode, inSpace int
}

// Moves is how often pods were put somewhere or taken away since the cluster was made.
func (c *Cluster) Moves() int { return len(c.moves) }

// Undo has all be where it was after so many moves, in the same order on nodes and in namespaces.
func (c *Cluster) Undo(moves int) {
	for len(c.moves) > moves {
		m := &c.moves[len(c.moves)-1]
		if m.put {
			c.unput(m)
		} else {
			c.unremove(m)
		}
		c.moves = c.moves[:len(c.moves)-1]
	}
}

// unput takes a pod from the ends of lists: whoever came later has gone by now.
func (c *Cluster) unput(m *move) {
	p := m.pod
	c.pods[p.Namespace] = c.pods[p.Namespace][:len(c.pods[p.Namespace])-1]
	c.index.remove(p)
	c.unrepel(p)
	if n := m.to; n != nil {
		n.count(p, -1)
		n.Pods = n.Pods[:len(n.Pods)-1]
		c.change(n)
	}
	p.Node = m.was
}

func (c *Cluster) unremove(m *move) {
	p := m.pod
	if m.inSpace >= 0 {
		c.pods[p.Namespace] = slices.Insert(c.pods[p.Namespace], m.inSpace, p)
		c.index.put(p)
		c.repel(p)
	}
	p.Node = m.was
	if n := m.was; n != nil {
		if m.onNode >= 0 {
			n.Pods = slices.Insert(n.Pods, m.onNode, p)
		}
		n.count(p, 1)
		c.change(n)
	}
}
