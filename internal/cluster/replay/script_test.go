package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"jettison/internal/cluster/config"
)

// zero is the time that the offsets of scripts refer to.
var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// object is a Kubernetes object as JSON.
type object = map[string]any

// scriptTime parses a time of a script: +50s, -1h, old (years before), none.
func scriptTime(t *testing.T, text string) any {
	switch text {
	case "none":
		return nil
	case "old":
		return "2016-01-01T00:00:00Z"
	case "year1":
		return "0001-01-01T00:00:00Z"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return zero.Add(d).Format(time.RFC3339Nano)
}

var statuses = map[string]string{"T": "True", "F": "False", "U": "Unknown"}

// parseWords collects the NAME=VALUE words of a line by name.
func parseWords(fields []string) map[string][]string {
	out := map[string][]string{}
	for _, f := range fields {
		k, v, _ := strings.Cut(f, "=")
		out[k] = append(out[k], v)
	}
	return out
}

func first(w map[string][]string, key, otherwise string) string {
	if v := w[key]; len(v) > 0 {
		return v[0]
	}
	return otherwise
}

// node parses:
//
//	node NAME [ready=T|F|U] [hb=+0s] [since=+0s] [reason=R] [created=old] [zone=r/z] [label=k:v]
//	  [taint=key:effect:added] [cond=Type:T[:hb]] [uid=U] [cordoned]
func node(t *testing.T, name string, w map[string][]string) object {
	labels, conditions, taints := object{}, []any{}, []any{}
	if z := first(w, "zone", ""); z != "" {
		r, z, _ := strings.Cut(z, "/")
		labels["topology.kubernetes.io/region"], labels["topology.kubernetes.io/zone"] = r, z
	}
	for _, l := range w["label"] {
		k, v, _ := strings.Cut(l, ":")
		labels[k] = v
	}
	if r := first(w, "ready", ""); r != "" {
		conditions = append(conditions, object{"type": "Ready", "status": statuses[r], "reason": first(w, "reason", ""),
			"lastHeartbeatTime": scriptTime(t, first(w, "hb", "+0s")), "lastTransitionTime": scriptTime(t, first(w, "since", "none"))})
	}
	for _, c := range w["cond"] {
		p := append(strings.SplitN(c, ":", 3), "+0s")
		conditions = append(conditions, object{"type": p[0], "status": statuses[p[1]], "lastHeartbeatTime": scriptTime(t, p[2])})
	}
	for _, x := range w["taint"] {
		p := append(strings.SplitN(x, ":", 3), "none")
		taints = append(taints, object{"key": p[0], "effect": p[1], "timeAdded": scriptTime(t, p[2])})
	}
	_, cordoned := w["cordoned"]
	return object{"metadata": object{"name": name, "uid": first(w, "uid", "u-"+name), "labels": labels,
		"creationTimestamp": scriptTime(t, first(w, "created", "old"))},
		"spec": object{"taints": taints, "unschedulable": cordoned}, "status": object{"conditions": conditions}}
}

// lease parses: lease NAME renew=+0s [stamp=+0s].
func lease(t *testing.T, name string, w map[string][]string) object {
	meta := object{"name": name, "namespace": "kube-node-lease"}
	if s := first(w, "stamp", ""); s != "" {
		meta["managedFields"] = []any{object{"manager": "kubelet", "operation": "Update", "time": scriptTime(t, s)}}
	}
	return object{"metadata": meta, "spec": object{"renewTime": scriptTime(t, first(w, "renew", "+0s"))}}
}

// pod parses:
//
//	pod NAME on=NODE [ready=T] [tol=key[:seconds]] [phase=P] [going] [uid=U] [created=+0s]
//
// A toleration of * matches any taint.
func pod(t *testing.T, name string, w map[string][]string) object {
	meta := object{"name": name, "namespace": "default", "uid": first(w, "uid", "u-"+name)}
	if _, going := w["going"]; going {
		meta["deletionTimestamp"] = scriptTime(t, "+0s")
	}
	if s := first(w, "created", ""); s != "" {
		meta["creationTimestamp"] = scriptTime(t, s)
	}
	status, tolerations := object{"phase": first(w, "phase", "Running")}, []any{}
	if r := first(w, "ready", ""); r != "" {
		status["conditions"] = []any{object{"type": "Ready", "status": statuses[r]}}
	}
	for _, x := range w["tol"] {
		key, seconds, timed := strings.Cut(x, ":")
		tol := object{"operator": "Exists", "effect": "NoExecute"}
		if key != "*" {
			tol["key"] = key
		}
		if timed {
			n, err := strconv.Atoi(seconds)
			if err != nil {
				t.Fatal(err)
			}
			tol["tolerationSeconds"] = n
		}
		tolerations = append(tolerations, tol)
	}
	return object{"metadata": meta, "spec": object{"nodeName": first(w, "on", ""), "tolerations": tolerations}, "status": status}
}

// frames parses a script: "at +0s", then the objects of the frame's lists. "nodes", "leases" or
// "pods" alone is an empty list.
func frames(t *testing.T, script string) string {
	var all []object
	add := func(list string, o ...any) {
		f := all[len(all)-1]
		before, _ := f[list].([]any)
		f[list] = append(append([]any{}, before...), o...)
	}
	for line := range strings.Lines(script) {
		f := strings.Fields(line)
		switch f[0] {
		case "at":
			all = append(all, object{"time": scriptTime(t, f[1])})
		case "nodes", "leases", "pods":
			add(f[0])
		case "node":
			add("nodes", node(t, f[1], parseWords(f[2:])))
		case "lease":
			add("leases", lease(t, f[1], parseWords(f[2:])))
		case "pod":
			add("pods", pod(t, f[1], parseWords(f[2:])))
		default:
			t.Fatalf("unknown command in script: %q", line)
		}
	}
	var b strings.Builder
	for _, f := range all {
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	return b.String()
}

// summarize formats the decisions on a frame as scripts expect them.
func summarize(o *Output) string {
	at, _ := time.Parse(time.RFC3339, o.Time)
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	fmt.Fprintf(&b, "%v", at.Sub(zero))
	for _, z := range slices.Sorted(maps.Keys(o.Zones)) {
		fmt.Fprintf(&b, " %s=%s", z, o.Zones[z])
	}
	if o.Next != nil {
		next, _ := time.Parse(time.RFC3339, *o.Next)
		fmt.Fprintf(&b, " next=%v", next.Sub(zero))
	}
	b.WriteString("\n")
	if o.Doubt != "" {
		add("doubt: %s", o.Doubt)
	}
	for _, w := range o.Status {
		for _, c := range w.Conditions {
			add("status %s %s=%s %s: %s", w.Node, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, w := range o.Labels {
		for _, k := range slices.Sorted(maps.Keys(w.Set)) {
			add("label %s %s=%s", w.Node, k, w.Set[k])
		}
	}
	for _, w := range o.Taints {
		add("taint %s +%v -%v", w.Node, w.Add, w.Remove)
	}
	for _, p := range o.PodsNotReady {
		add("not ready %s", p)
	}
	for _, e := range o.Evict {
		add("evict %s/%s %s after %v", e.Namespace, e.Name, e.UID, e.After)
	}
	for _, e := range o.Events {
		if e.Reason != "RegisteredNode" {
			add("event %s %s %s: %s", e.Object, e.Type, e.Reason, e.Message)
		}
	}
	return b.String()
}

// TestScripts runs the scripts of testdata.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			text := config.APIVersion
			text = "apiVersion: " + text + "\nkind: " + config.Kind + "\n"
			for _, a := range d.CmdArgs {
				text += a.Key + ": " + a.Vals[0] + "\n"
			}
			c, err := config.Parse([]byte(text))
			if err != nil {
				return err.Error() + "\n"
			}
			var out bytes.Buffer
			p := newPlayer(c)
			r := newReader(strings.NewReader(frames(t, d.Input)), "script")
			for {
				f, err := r.next()
				if err != nil {
					if err.Error() != "EOF" {
						t.Fatal(err)
					}
					return out.String()
				}
				out.WriteString(summarize(p.play(f)))
			}
		})
	})
}
