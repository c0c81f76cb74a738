package reclaim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"jettison/stats"
)

// The script in testdata/memory.txt runs the planner and the governor of memory. go test ./reclaim
// -rewrite rewrites the expected answers; review the diff.
//
//	look                              sets the look: a line "swap free=1Gi keep=0 generations", lines "above PATH current= protected=",
//	                                  lines "pod NAME class= current= protected= swapleft= ia= aa= if= af= stall= above=PATH,PATH exempt"
//	plan kind=anon bytes=64Mi time=1s rate=64Mi
//	time headroom= fill= margin=      time in which memory may be reclaimed
//	need available= hard= soft= grace= fill= margin=      whether to reclaim, the amount and the time
//	kind free= keep=                  the kind that helps
//	governor                          creates a governor
//	effect t= kind= asked= before= after= fell= freed= refaulted= took= early stopped
//	allows t= kind=
//	chunk bytes= took=
func TestMemoryScript(t *testing.T) {
	s := &memoryScript{}
	datadriven.RunTest(t, "testdata/memory.txt", func(t *testing.T, d *datadriven.TestData) string {
		args := map[string]string{}
		for _, a := range d.CmdArgs {
			args[a.Key] = strings.Join(a.Vals, ",")
		}
		return s.run(t, d.Cmd, args, d.Input)
	})
}

type memoryScript struct {
	look     MemoryLook
	governor MemoryGovernor
}

// amount parses a number of bytes; absent without text.
func amount(t testing.TB, text string) stats.Opt[uint64] {
	t.Helper()
	scale := 1.0
	for suffix, by := range map[string]float64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, scale = rest, by
		}
	}
	switch text {
	case "", "?":
		return stats.Opt[uint64]{}
	case "max":
		return stats.Some(uint64(math.MaxUint64))
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return stats.Some(uint64(n * scale))
}

func duration(t testing.TB, text string) time.Duration {
	t.Helper()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func kindOf(text string) MemoryKind {
	if text == "file" {
		return PageCache
	}
	return Anonymous
}

func (s *memoryScript) run(t *testing.T, cmd string, args map[string]string, input string) string {
	size := func(key string) stats.Opt[uint64] { return amount(t, args[key]) }
	at := now.Add(duration(t, args["t"]))
	kind := kindOf(args["kind"])
	switch cmd {
	case "look":
		s.look = parseMemoryLook(t, input)
		return "ok\n"
	case "plan":
		plan := PlanMemory(&s.look, MemoryTarget{Kind: kind, Bytes: size("bytes").V, Time: duration(t, args["time"]), Rate: float64(size("rate").V)})
		var out strings.Builder
		for _, a := range plan.Requests {
			fmt.Fprintf(&out, "%s %s: %.1f MiB, %.0f%% cold\n", a.UID, a.Cgroup, float64(a.Bytes)/(1<<20), a.ColdShare*100)
		}
		fmt.Fprintf(&out, "%.1f MiB of %v %s\n", float64(plan.Bytes)/(1<<20), plan.Kind, plan.Why)
		return out.String()
	case "time":
		return fmt.Sprintln(MemoryTime(size("headroom").V, float64(size("fill").V), duration(t, args["margin"])))
	case "need":
		n := MemoryNeed{Available: size("available").V, Hard: size("hard"), Soft: size("soft"), Fill: float64(size("fill").V), Margin: duration(t, args["margin"])}
		if args["grace"] != "" {
			n.Grace = stats.Some(duration(t, args["grace"]))
		}
		w, ok := n.Wish()
		if !ok {
			return "no\n"
		}
		return fmt.Sprintf("%d MiB in %v\n", w.Bytes>>20, w.Time)
	case "kind":
		return fmt.Sprintln(MemoryKindFor(size("free"), size("keep").V))
	case "governor":
		s.governor = MemoryGovernor{}
		return "ok\n"
	case "effect":
		_, early := args["early"]
		_, stopped := args["stopped"]
		e := MemoryEffect{Kind: kind, Asked: size("asked").V, Before: size("before"), After: size("after"), Fell: size("fell").V, Freed: size("freed"),
			Refaulted: size("refaulted"), Took: duration(t, args["took"]), Final: !early, Stopped: stopped}
		v := s.governor.Judge(at, &e)
		text := fmt.Sprintf("judged %v pays %v %s", v.Judged, v.Worthwhile, v.Why)
		if !v.Off.IsZero() {
			text += fmt.Sprintf("; off for %v", v.Off.Sub(at))
		}
		return text + fmt.Sprintf("; rate %.0f MiB/s\n", s.governor.Rate(kind)/(1<<20))
	case "allows":
		return fmt.Sprintln(s.governor.Allows(at, kind))
	case "chunk":
		return fmt.Sprintf("%d KiB\n", NextMemoryChunk(size("bytes").V, duration(t, args["took"]))>>10)
	}
	t.Fatalf("unknown command in the script: %s", cmd)
	return ""
}

func parseMemoryLook(t testing.TB, input string) (l MemoryLook) {
	l.Above = map[string]MemoryGroup{}
	for line := range strings.Lines(input) {
		words, args := strings.Fields(line), map[string]string{}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			args[key] = value
		}
		size := func(key string) stats.Opt[uint64] { return amount(t, args[key]) }
		switch words[0] {
		case "swap":
			_, l.Generations = args["generations"]
			l.SwapFreeBytes, l.SwapKeepBytes = size("free"), size("keep").V
		case "above":
			l.Above[words[1]] = MemoryGroup{CurrentBytes: size("current"), ProtectedBytes: size("protected")}
		case "pod":
			_, exempt := args["exempt"]
			p := MemoryPod{UID: words[1], Cgroup: "kubepods/pod" + words[1], Exempt: exempt, CurrentBytes: size("current"), ProtectedBytes: size("protected"), SwapLeftBytes: size("swapleft")}
			p.QOSClass = map[string]stats.QOSClass{"be": stats.BestEffort, "bu": stats.Burstable, "g": stats.Guaranteed}[args["class"]]
			if _, unread := args["unread"]; !unread {
				p.Lists = stats.Some(MemoryLists{size("ia").V, size("aa").V, size("if").V, size("af").V})
			}
			if args["stall"] != "" {
				share, err := strconv.ParseFloat(args["stall"], 64)
				if err != nil {
					t.Fatal(err)
				}
				p.StallShare = stats.Some(share)
			}
			if args["above"] != "" {
				p.Above = strings.Split(args["above"], ",")
			}
			l.Pods = append(l.Pods, p)
		default:
			t.Fatalf("unknown line in the script: %q", line)
		}
	}
	return l
}

// someMemory generates a look with few distinct values, so that they coincide often.
func someMemory(t *rapid.T) (*MemoryLook, MemoryTarget) {
	mib := func(name string) uint64 {
		return rapid.SampledFrom([]uint64{0, 1, 5, 16, 40, 100, 3000}).Draw(t, name) << 20
	}
	opt := func(name string) stats.Opt[uint64] {
		return stats.Opt[uint64]{V: mib(name), OK: rapid.IntRange(0, 9).Draw(t, name+" known") > 0}
	}
	l := &MemoryLook{Above: map[string]MemoryGroup{}, SwapFreeBytes: opt("swap"), SwapKeepBytes: mib("keep"), Generations: rapid.Bool().Draw(t, "generations")}
	paths := []string{"kubepods", "kubepods/besteffort", "kubepods/burstable"}
	for _, path := range paths {
		if rapid.IntRange(0, 9).Draw(t, "there") > 0 {
			l.Above[path] = MemoryGroup{CurrentBytes: opt("above current"), ProtectedBytes: opt("above protected")}
		}
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		p := MemoryPod{UID: strconv.Itoa(i), Cgroup: "pod" + strconv.Itoa(i), Exempt: rapid.IntRange(0, 5).Draw(t, "exempt") == 0,
			QOSClass:     rapid.SampledFrom([]stats.QOSClass{stats.BestEffort, stats.Burstable, stats.Guaranteed, "", "?"}).Draw(t, "class"),
			CurrentBytes: opt("current"), ProtectedBytes: opt("protected"), SwapLeftBytes: opt("swap left")}
		p.Lists = stats.Opt[MemoryLists]{V: MemoryLists{mib("ia"), mib("aa"), mib("if"), mib("af")}, OK: rapid.IntRange(0, 9).Draw(t, "read") > 0}
		p.StallShare = stats.Opt[float64]{V: rapid.SampledFrom([]float64{0, 0.04, 0.05, 1, math.NaN()}).Draw(t, "stall"), OK: rapid.Bool().Draw(t, "psi")}
		p.Above = paths[:rapid.IntRange(0, 3).Draw(t, "depth")]
		l.Pods = append(l.Pods, p)
	}
	return l, MemoryTarget{Kind: rapid.SampledFrom([]MemoryKind{Anonymous, PageCache}).Draw(t, "kind"), Bytes: rapid.SampledFrom([]uint64{0, 1 << 20, 64 << 20, 1 << 40, math.MaxUint64}).Draw(t, "bytes"),
		Time: time.Duration(rapid.IntRange(-1, 5).Draw(t, "time")) * 300 * time.Millisecond,
		Rate: rapid.SampledFrom([]float64{-1, 0, 1 << 20, 64 << 20, 1 << 40, math.Inf(1), math.NaN()}).Draw(t, "rate")}
}

func TestMemoryPlanLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, w := someMemory(t)
		plan := PlanMemory(l, w)
		if (len(plan.Requests) == 0) == (plan.Why == "") || len(plan.Requests) > 0 && w.Time < minMemoryTime {
			t.Fatalf("plan must have either asks or a reason: %+v", plan)
		}
		total, below, before := uint64(0), map[string]uint64{}, 0
		for i, a := range plan.Requests {
			p := &l.Pods[slices.IndexFunc(l.Pods, func(p MemoryPod) bool { return p.UID == a.UID })]
			if p.Exempt || p.QOSClass != stats.BestEffort && p.QOSClass != stats.Burstable || p.StallShare.OK && p.StallShare.V >= stallLimit {
				t.Fatalf("ask to a pod that memory is never reclaimed from: %+v", p)
			}
			if !p.CurrentBytes.OK || !p.ProtectedBytes.OK || !p.Lists.OK || a.Bytes+p.ProtectedBytes.V > p.CurrentBytes.V {
				t.Fatalf("ask for %d bytes exceeds the pod %+v", a.Bytes, p)
			}
			if a.Bytes < minMemoryAsk || w.Kind == PageCache && a.Bytes > p.Lists.V.InactiveFile || w.Kind == Anonymous && (a.Bytes > p.Lists.V.InactiveAnon+p.Lists.V.ActiveAnon || a.Bytes > p.SwapLeftBytes.V || !p.SwapLeftBytes.OK) {
				t.Fatalf("ask for %d bytes exceeds the pod %+v", a.Bytes, p)
			}
			if w.Kind == Anonymous && !l.Generations && a.Bytes > p.Lists.V.InactiveAnon {
				t.Fatalf("ask for active memory: %d bytes of %+v", a.Bytes, p)
			}
			if order := classOrder(p.QOSClass); order < before || i > 0 && order == before && a.ColdShare > plan.Requests[i-1].ColdShare {
				t.Fatalf("asks are not in order: %+v", plan.Requests)
			}
			before = classOrder(p.QOSClass)
			total += a.Bytes
			for _, path := range p.Above {
				below[path] += a.Bytes
			}
		}
		for path, bytes := range below {
			if g := l.Above[path]; !g.CurrentBytes.OK || !g.ProtectedBytes.OK || bytes+g.ProtectedBytes.V > g.CurrentBytes.V {
				t.Fatalf("asks for %d bytes below %s exceed the group %+v", bytes, path, g)
			}
		}
		if total != plan.Bytes || total > MaxMemoryBytes || total > max(w.Bytes, minMemoryAsk) || w.Kind == Anonymous && total > 0 && total+l.SwapKeepBytes > l.SwapFreeBytes.V ||
			w.Rate >= 0 && float64(total) > w.Rate*MaxMemoryTime.Seconds() {
			t.Fatalf("sum %d of the plan %+v exceeds the wish %+v or the limits", total, plan, w)
		}
	})
}

// No reclaim while a hard threshold is met, or for longer than the time until it is met.
func TestMemoryNeedLeavesTimeToKill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string) stats.Opt[uint64] {
			return stats.Opt[uint64]{V: rapid.SampledFrom([]uint64{0, 1, 50 << 20, 100 << 20, 150 << 20, 250 << 20, math.MaxUint64}).Draw(t, name), OK: rapid.Bool().Draw(t, name+" there")}
		}
		n := MemoryNeed{Available: size("available").V, Hard: size("hard"), Soft: size("soft"), Fill: rapid.SampledFrom([]float64{-1, 0, 1, 1 << 20, 1 << 27, 1 << 40, math.Inf(1), math.NaN()}).Draw(t, "fill"),
			Margin: time.Duration(rapid.IntRange(0, 500).Draw(t, "margin")) * time.Millisecond}
		if !n.Hard.OK {
			n.Hard.V = 0
		}
		if !n.Soft.OK {
			n.Soft.V = 0
		}
		if rapid.Bool().Draw(t, "met") {
			n.Grace = stats.Some(time.Duration(rapid.IntRange(-1000, 10000).Draw(t, "grace")) * time.Millisecond)
		}
		w, ok := n.Wish()
		if !ok {
			return
		}
		limit := max(n.Hard.V, n.Soft.V)
		if n.Hard.OK && n.Available < n.Hard.V || n.Available/2 >= limit || w.Bytes == 0 || w.Time < minMemoryTime || w.Time > MaxMemoryTime {
			t.Fatalf("wish for need %+v = %+v, want none", n, w)
		}
		if n.Hard.OK && n.Fill > 0 && n.Fill*(w.Time+n.Margin).Seconds() > float64(n.Available-n.Hard.V)*1.0001 || n.Grace.OK && w.Time+n.Margin > n.Grace.V {
			t.Fatalf("wish for need %+v lasts too long: %+v", n, w)
		}
	})
}

// The governor disables a kind for 5 minutes to an hour, and only after two insufficient effects in
// a row.
func TestMemoryGovernorDisabledTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g MemoryGovernor
		at, failed := now, 0
		size := func(name string) stats.Opt[uint64] {
			return stats.Opt[uint64]{V: rapid.SampledFrom([]uint64{0, 1 << 20, 10 << 20, 100 << 20, math.MaxUint64}).Draw(t, name), OK: rapid.IntRange(0, 9).Draw(t, name+" known") > 0}
		}
		for range 20 {
			at = at.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "wait")) * time.Minute)
			kind := rapid.SampledFrom([]MemoryKind{Anonymous, PageCache}).Draw(t, "kind")
			if ok, why := g.Allows(at, kind); !ok {
				if why == "" {
					t.Fatal("kind is disabled without a reason")
				}
				if ok, _ := g.Allows(at.Add(time.Hour), kind); !ok {
					t.Fatal("kind is disabled for more than an hour")
				}
				continue
			}
			if kind == PageCache { // kinds are independent
				g.Judge(at, &MemoryEffect{Kind: kind, Asked: 100 << 20, Before: stats.Some[uint64](1), After: stats.Some[uint64](1), Final: true})
				continue
			}
			v := g.Judge(at, &MemoryEffect{Kind: kind, Asked: size("asked").V, Before: size("before"), After: size("after"), Fell: size("fell").V, Freed: size("freed"),
				Refaulted: size("refaulted"), Took: time.Duration(rapid.Int64().Draw(t, "took")), Final: rapid.Bool().Draw(t, "final")})
			switch {
			case v.Judged && v.Worthwhile:
				failed = 0
			case v.Judged:
				failed++
			}
			if off := v.Off.Sub(at); v.Off.IsZero() == (v.Judged && !v.Worthwhile && failed >= 2) || !v.Off.IsZero() && (off < 5*time.Minute || off > time.Hour) {
				t.Fatalf("verdict %+v after %d failures in a row", v, failed)
			}
			if rate := g.Rate(kind); !(rate >= minRate) {
				t.Fatalf("rate = %v, outside of its limits", rate)
			}
		}
	})
}

// BenchmarkPlanMemory plans for 2,000 pods. The plan is made on the thread that reclaims and must
// be fast compared to reclaiming.
func BenchmarkPlanMemory(b *testing.B) {
	l := &MemoryLook{SwapFreeBytes: stats.Some[uint64](1 << 40), Above: map[string]MemoryGroup{"kubepods": {stats.Some[uint64](1 << 40), stats.Some[uint64](0)}}}
	for i := range 2000 {
		l.Pods = append(l.Pods, MemoryPod{UID: strconv.Itoa(i), Cgroup: "kubepods/pod" + strconv.Itoa(i), QOSClass: stats.Burstable, CurrentBytes: stats.Some(uint64(100+i) << 20),
			ProtectedBytes: stats.Some[uint64](0), SwapLeftBytes: stats.Some[uint64](math.MaxUint64), Lists: stats.Some(MemoryLists{1 << 20, 50 << 20, 3 << 20, 0}), Above: []string{"kubepods"}})
	}
	b.ReportAllocs()
	for b.Loop() {
		PlanMemory(l, MemoryTarget{Bytes: 1 << 30, Time: time.Second, Rate: 1 << 30})
	}
}
