package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// levels is the order of the rooms: an import runs up if it names a room of a higher level.
// Programs share one level, and so do the rooms that several of them share.
var levels = map[string]int{
	"base": 0, "node": 1, "kube": 1,
	"agent": 2, "cli": 2, "bridge": 2, "cluster": 2, "pods": 2,
}

// graph has the imports of each room.
type graph map[string]map[string]bool

func (g graph) add(from string) {
	if g[from] == nil {
		g[from] = map[string]bool{}
	}
}

func (g graph) arrow(from, to string) {
	g.add(from)
	g.add(to)
	if from != to {
		g[from][to] = true
	}
}

func (g graph) arrows() (out []string) {
	for from, to := range g {
		for name := range to {
			out = append(out, from+" -> "+name)
		}
	}
	slices.Sort(out)
	return out
}

// up returns the arrows to a room of a higher level; !ok: the tree has other rooms.
func (g graph) up() (out []string, ok bool) {
	if g["base"] == nil || g["node"] == nil {
		return nil, false
	}
	for _, arrow := range g.arrows() {
		from, to, _ := strings.Cut(arrow, " -> ")
		low, known := levels[from]
		high, knows := levels[to]
		if known && knows && high > low {
			out = append(out, arrow)
		}
	}
	return out, true
}

// circles returns the sets of more than one node that all reach each other.
func (g graph) circles() (out []string) {
	reached := map[string]map[string]bool{}
	for from := range g {
		reached[from] = g.reach(from)
	}
	seen := map[string]bool{}
	for _, a := range slices.Sorted(maps.Keys(g)) {
		var circle []string
		for b := range reached[a] {
			if b != a && !seen[b] && reached[b][a] {
				circle = append(circle, b)
			}
		}
		if len(circle) == 0 || seen[a] {
			continue
		}
		circle = append(circle, a)
		slices.Sort(circle)
		for _, name := range circle {
			seen[name] = true
		}
		out = append(out, strings.Join(circle, ", "))
	}
	return out
}

func (g graph) reach(from string) map[string]bool {
	out, next := map[string]bool{}, []string{from}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for to := range g[at] {
			if !out[to] {
				out[to] = true
				next = append(next, to)
			}
		}
	}
	return out
}

// inside returns the graphs of the folders directly below internal, and of its packages.
func inside(t *tree) (rooms, packages graph) {
	const top = "internal/"
	rooms, packages = graph{}, graph{}
	room := func(dir string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(dir, top), "/")
		return name
	}
	for _, f := range t.product {
		if !strings.HasPrefix(f.dir, top) {
			continue
		}
		rooms.add(room(f.dir))
		packages.add(f.dir)
		for _, i := range f.ast.Imports {
			to := strings.TrimPrefix(strings.Trim(i.Path.Value, `"`), t.module+"/")
			if strings.HasPrefix(to, top) {
				rooms.arrow(room(f.dir), room(to))
				packages.arrow(f.dir, to)
			}
		}
	}
	return rooms, packages
}

func roomRows(t *tree) []row {
	rooms, packages := inside(t)
	up := row{
		what:   "arrows that run up (base < node, kube < agent, cli, bridge, cluster, pods)",
		figure: na,
	}
	if arrows, ok := rooms.up(); ok {
		up = count(up.what, arrows)
	}
	return []row{
		count("rooms: folders directly below internal/", slices.Sorted(maps.Keys(rooms))),
		count("arrows between rooms", rooms.arrows()),
		up,
		count("circles of rooms", rooms.circles()),
		{"packages below internal/", fmt.Sprint(len(packages)), nil},
		{"imports among these packages", fmt.Sprint(len(packages.arrows())), nil},
	}
}
