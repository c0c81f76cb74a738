package eviction

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Random timelines: a node with its kernel, its runtime and its pods drives this package as the
// agent does. Some pods leak, die late or in part, or are recreated, while clients lie about them
// and clocks are set. Rules state what is true on each timeline (timelinerules_test.go).
//
//	go test ./eviction -run TestTimelines -timelines=100000 [-timelineseed=N]
//
// A timeline that breaks a rule is shrunk and printed. In testdata/timelines it runs with every
// test.
var (
	timelines    = flag.Int("timelines", 500, "how many random timelines pass")
	timelineSeed = flag.Uint64("timelineseed", 0, "the first one's seed")
)

// knownBroken lists the rules that are known to be broken.
var knownBroken = []string{}

// checkTimeline runs a timeline twice, once with the pods in another order at each look, and
// returns the first broken rule.
func checkTimeline(tl *timeline) (rule, reason string, s *shell) {
	s = run(tl, nil)
	if s.rules.broken != "" {
		return s.rules.broken, s.rules.reason, s
	}
	other := run(tl, rand.New(rand.NewPCG(1, 2)))
	if slices.Equal(s.log, other.log) {
		return "", "", s
	}
	same := run(tl, nil)
	rule, with := ruleOrder, other
	if !slices.Equal(s.log, same.log) {
		rule, with = ruleDeterminism, same
	}
	for i := range s.log {
		if i >= len(with.log) || s.log[i] != with.log[i] {
			reason = fmt.Sprintf("%q is now %q", s.log[i], slices.Concat(with.log, []string{"nothing"})[min(i, len(with.log))])
			break
		}
	}
	return rule, reason, s
}

// enforced reports whether a broken rule is a failure.
func enforced(rule string) bool { return rule != "" && !slices.Contains(knownBroken, rule) }

func TestTimelines(t *testing.T) {
	start := time.Now()
	var next atomic.Uint64
	var mu sync.Mutex
	broken := map[string][]uint64{} // the seeds that break each rule
	var looks, evictions atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < uint64(*timelines); i = next.Add(1) - 1 {
				seed := *timelineSeed + i
				rule, _, s := checkTimeline(generate(seed))
				evictions.Add(int64(s.rules.count))
				looks.Add(int64(s.looked))
				if !enforced(rule) {
					continue
				}
				mu.Lock()
				broken[rule] = append(broken[rule], seed)
				mu.Unlock()
				t.Logf("seed %d breaks %q", seed, rule) // logged immediately: a run of all of them takes long
			}
		})
	}
	all.Wait()
	t.Logf("%d timelines with %d looks and %d evictions in %v", *timelines, looks.Load(), evictions.Load(), time.Since(start).Round(time.Millisecond))
	for rule, seeds := range broken {
		seed := slices.Min(seeds)
		small := shrink(generate(seed), func(tl *timeline) bool { r, _, _ := checkTimeline(tl); return r == rule })
		_, reason, s := checkTimeline(small)
		t.Errorf("seed %d (of %d) breaks rule %q: %s\n%s\n%s", seed, len(seeds), rule, reason, small.text(), strings.Join(s.log, "\n"))
	}
}

// Timelines that broke a rule once.
func TestSavedTimelines(t *testing.T) {
	files, err := filepath.Glob("testdata/timelines/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tl, err := parseTimeline(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if rule, reason, s := checkTimeline(&tl); enforced(rule) {
				t.Errorf("saved timeline breaks rule %q: %s\n%s", rule, reason, strings.Join(s.log, "\n"))
			}
		})
	}
}

// The printed timeline equals the one that ran.
func TestTimelineTextRoundTrip(t *testing.T) {
	for seed := range uint64(100) {
		tl := generate(seed)
		parsed, err := parseTimeline("# seed\n\n" + tl.text())
		if err != nil || parsed.text() != tl.text() || !slices.Equal(parsed.Pods, tl.Pods) || !slices.Equal(parsed.Events, tl.Events) || parsed.Node != tl.Node {
			t.Fatalf("parsed timeline differs, error %v: want\n%s\ngot\n%s", err, tl.text(), parsed.text())
		}
	}
}

// An instant is like a result of time.Now, except that its clocks may differ.
func TestInstants(t *testing.T) {
	a, b := instant(epoch, time.Minute), instant(epoch.Add(-time.Hour), time.Minute+time.Second)
	switch {
	case b.Sub(a) != time.Second || !b.After(a):
		t.Errorf("later instant is %v after %v, want 1s", b.Sub(a), a)
	case !a.Equal(instant(epoch, time.Minute)) || !a.Round(0).Equal(epoch):
		t.Errorf("instant = %v, want wall clock %v", a, epoch)
	case b.Round(0).Sub(a.Round(0)) != -time.Hour || a.Add(time.Second).Round(0) != epoch.Add(time.Second).UTC():
		t.Errorf("difference by the wall clock = %v, want -1h", b.Round(0).Sub(a.Round(0)))
	}
}
