package eviction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"jettison/stats"
)

// The scripts in testdata are conversations with a Manager; go test ./eviction -rewrite writes the answers anew, to be
// reviewed as a diff. A pod is one line: name, then fields.
//
//	new [hard=100Mi]                    a manager
//	pods                                the pods from now on
//	  leaker qos=BestEffort use=500Mi [request=..] [priority=..] [ns=..] [source=..] [mirror] [critical] [self] [stranger] [empty] [age=1h]
//	step t=0s available=50Mi | absent   one look
//	begin                               evict the victim of the last step
//	done t=1s died=true | cleaned       what became of it
func TestManagerScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			text, err := s.run(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return text
		})
	})
}

var epoch = time.Unix(1_000_000, 0)

type script struct {
	m    *Manager
	pods []stats.PodStats
	last Decision
}

func (s *script) run(d *datadriven.TestData) (string, error) {
	args := map[string]string{}
	for _, a := range d.CmdArgs {
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	now := epoch
	if text, ok := args["t"]; ok {
		after, err := time.ParseDuration(text)
		if err != nil {
			return "", err
		}
		now = epoch.Add(after)
	}
	switch d.Cmd {
	case "new":
		hard, err := ParseHard(map[string]string{"memory.available": args["hard"], "nodefs.available": "10%"})
		if err != nil {
			return "", err
		}
		s.m = NewManager(Config{Hard: hard, MemoryAvailable: stats.MemoryAvailableKernel, Policy: Policy{
			AnnotationNamespaces: []string{"kube-system"}, ProtectedNamespaces: []string{"kube-system"},
		}})
	case "pods":
		s.pods = nil
		for line := range strings.Lines(d.Input) {
			p, err := parsePod(strings.Fields(line))
			if err != nil {
				return "", err
			}
			s.pods = append(s.pods, p)
		}
	case "step":
		summary := &stats.Summary{Time: now, Pods: slices.Clone(s.pods)}
		if _, absent := args["absent"]; !absent {
			summary.Node.Memory = stats.NodeMemoryStats{
				CapacityBytes: stats.Some(quantity("8Gi")), KernelAvailableBytes: stats.Some(quantity(args["available"])),
			}
		}
		s.last = s.m.Step(now, summary)
		return s.last.text(), nil
	case "begin":
		if s.last.Victim < 0 {
			return "", fmt.Errorf("the last step had no victim")
		}
		s.m.Begin(s.last.Ranking[s.last.Victim].Pod.PodRef.UID, s.last.Signal.Observed.Available)
	case "done":
		s.m.Done(now, s.m.settling.uid, args["died"] == "true")
	case "cleaned":
		s.m.Cleaned(s.m.settling.uid)
	default:
		return "", fmt.Errorf("no command %q", d.Cmd)
	}
	return "ok\n", nil
}

func parsePod(words []string) (stats.PodStats, error) {
	p := stats.PodStats{
		PodRef:    stats.PodReference{Name: words[0], UID: words[0], Namespace: "default"},
		Announced: true, Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		Populated: stats.Some(true), StartTime: epoch.Add(-time.Hour),
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "qos":
			p.QOSClass = stats.QOSClass(value)
		case "use":
			p.Memory.WorkingSetBytes = stats.Some(quantity(value))
		case "request":
			p.MemoryRequest = stats.Some(stats.Range{Min: quantity(value), Max: quantity(value)})
		case "priority":
			p.Annotations["jettison/priority"] = value
		case "ns":
			p.PodRef.Namespace = value
		case "source":
			p.Annotations["kubernetes.io/config.source"] = value
		case "mirror":
			p.Annotations["kubernetes.io/config.mirror"] = "hash"
		case "critical":
			p.NodeCritical = true
		case "self":
			p.Self = true
		case "stranger":
			p.Announced, p.Annotations, p.PodRef.Namespace, p.PodRef.Name = false, nil, "", ""
		case "uid":
			p.PodRef.UID = value
		case "empty":
			p.Populated = stats.Some(false)
		case "age":
			age, err := time.ParseDuration(value)
			if err != nil {
				return p, err
			}
			p.StartTime = epoch.Add(-age)
		default:
			return p, fmt.Errorf("no field %q", key)
		}
	}
	return p, nil
}

// text writes a decision for the scripts.
func (d Decision) text() string {
	var b strings.Builder
	for _, m := range d.Met {
		fmt.Fprintf(&b, "met %s, %s available, for %v\n", m.Threshold, bytesQuantity(m.Observed.Available), d.Time.Sub(m.Since))
	}
	for i, r := range d.Ranking {
		name := r.Pod.PodRef.Name
		if name == "" {
			name = "uid " + r.Pod.PodRef.UID
		}
		fmt.Fprintf(&b, "%d. %s: %s", i+1, name, r.Explain())
		if r.DecidedBy != "" {
			fmt.Fprintf(&b, " [after the one before by %s]", r.DecidedBy)
		}
		b.WriteString("\n")
	}
	for _, c := range d.Protected {
		fmt.Fprintf(&b, "protected %s: %s\n", strconv.Quote(c.Pod.PodRef.Name), c.Protected)
	}
	switch {
	case d.Victim >= 0:
		fmt.Fprintf(&b, "evict %s\n%s\n", d.Ranking[d.Victim].Pod.PodRef.UID, strings.TrimSpace(d.Message()))
	case len(d.Met) > 0:
		fmt.Fprintf(&b, "evict nobody: %s\n", d.Reason)
	default:
		b.WriteString("no threshold is met\n")
	}
	return b.String()
}

// Whatever the pods are: no protected, empty or unmeasured-before-measured victim, and never two evictions at once.
func TestVictimsHoldForAnyPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []stats.PodStats
		for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
			p := stats.PodStats{
				PodRef:    stats.PodReference{Name: "p" + strconv.Itoa(i), UID: "u" + strconv.Itoa(i), Namespace: rapid.SampledFrom([]string{"default", "kube-system"}).Draw(t, "ns")},
				Announced: rapid.Bool().Draw(t, "announced"), Populated: stats.Opt[bool]{V: rapid.Bool().Draw(t, "alive"), OK: rapid.Bool().Draw(t, "known")},
				Self: rapid.Bool().Draw(t, "self"), NodeCritical: rapid.Bool().Draw(t, "critical"),
				Annotations: map[string]string{
					"kubernetes.io/config.source": rapid.SampledFrom([]string{"api", "file", "http"}).Draw(t, "source"),
					"jettison/priority":           rapid.SampledFrom([]string{"", "0", "x", "2000000000", "2000000001", "99999999999999"}).Draw(t, "priority"),
				},
			}
			p.Memory.WorkingSetBytes = stats.Opt[uint64]{V: rapid.Uint64().Draw(t, "use"), OK: rapid.Bool().Draw(t, "measured")}
			pods = append(pods, p)
		}
		s := &script{pods: pods}
		if _, err := s.run(&datadriven.TestData{Cmd: "new", CmdArgs: []datadriven.CmdArg{{Key: "hard", Vals: []string{"100Mi"}}}}); err != nil {
			t.Fatal(err)
		}
		summary := &stats.Summary{Pods: pods, Node: stats.NodeStats{Memory: stats.NodeMemoryStats{
			CapacityBytes: stats.Some(quantity("8Gi")), KernelAvailableBytes: stats.Some(quantity("50Mi")),
		}}}
		d := s.m.Step(epoch, summary)
		if d.Victim < 0 {
			return
		}
		v := d.Ranking[d.Victim].Pod
		switch {
		case v.Self, v.NodeCritical, v.Annotations["kubernetes.io/config.source"] != "api":
			t.Fatalf("the victim is protected: %+v", v)
		case v.PodRef.Namespace == "kube-system" && !slices.Contains([]string{"0"}, v.Annotations["jettison/priority"]):
			t.Fatalf("the victim is in a protected namespace or critical: %+v", v)
		case v.Populated.OK && !v.Populated.V:
			t.Fatalf("the victim is empty: %+v", v)
		case !v.Memory.WorkingSetBytes.OK && slices.ContainsFunc(d.Ranking, func(r Ranked) bool { return r.measured() }):
			t.Fatalf("the victim is not measured, another one is: %+v", v)
		}
		s.m.Begin(v.PodRef.UID, d.Signal.Observed.Available)
		if again := s.m.Step(epoch.Add(time.Second), summary); again.Victim >= 0 {
			t.Fatal("a second victim while the first is dying")
		}
	})
}
