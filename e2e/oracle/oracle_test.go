package oracle

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	// Upstream holds a lock while it waits to retry a write. A goroutine that waits for that lock
	// is not idle for a bubble of testing/synctest, so its clock would stop: make upstream retry
	// immediately.
	controller.UpdateTaintBackoff.Duration, controller.UpdateLabelBackoff.Duration = 0, 0
	os.Exit(m.Run())
}

// timelines returns the range of timelines to compare. JETTISON_TIMELINES is their number, 1,000 if
// not set, JETTISON_SEED the first.
func timelines() (from, to int) {
	count := 1000
	if n, err := strconv.Atoi(os.Getenv("JETTISON_TIMELINES")); err == nil {
		count = n
	}
	from, _ = strconv.Atoi(os.Getenv("JETTISON_SEED"))
	return from, from + count
}

// tally counts the results of all timelines.
type tally struct {
	mu                         sync.Mutex
	by                         map[string]int // differences, by improvement
	played, same               int
	states, deleted, differing int
	more, unexplained          int
}

// Every difference between upstream's controllers and the cores has a documented improvement as
// reason, and its rule is checked.
func TestTheCoresDifferFromUpstreamByImprovementsOnly(t *testing.T) {
	all := &tally{by: map[string]int{}}
	from, to := timelines()
	var next atomic.Int64
	next.Store(int64(from))
	t.Run("timelines", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for seed := int(next.Add(1) - 1); seed < to; seed = int(next.Add(1) - 1) {
					all.play(t, newTimeline(seed))
				}
			})
		}
	})
	t.Logf("%d timelines, %d the same; %d states of nodes and pods, %d deletions; %d differences, %d unexplained", all.played, all.same,
		all.states, all.deleted, all.differing, all.unexplained)
	for _, why := range slices.Sorted(maps.Keys(all.by)) {
		t.Logf("%6d %s", all.by[why], why)
	}
	t.Logf("%6d of the deletions need two or more of them, and count for the first", all.more)
}

// Seeds of timelines whose differences were unexplained once, or broke an invariant.
func TestTimelinesThatWereUnexplained(t *testing.T) {
	all := &tally{by: map[string]int{}}
	for _, seed := range []int{5501043, 5500946, 5500567, 7700045, 8800058, 8800153, 900038,
		42000410, 42000945, 42001660, 42001812, 60003501, 70000296, 74000415, 645} {
		all.play(t, newTimeline(seed))
	}
}

// play plays a timeline with both, and counts the results.
func (a *tally) play(t *testing.T, line *timeline) {
	o := play(line)
	c := compare(t, line, o, upstream(t, line, line.changes, lifecycles))
	for _, wrong := range c.healthy() {
		t.Errorf("seed %d: core breaks an invariant: %s", line.seed, wrong)
	}
	for _, wrong := range c.paced() {
		t.Errorf("seed %d: core breaks its pace: %s", line.seed, wrong)
	}
	changes := o.heard()
	ours := evict(line, changes)
	for uid, at := range predict(line, changes, 0) {
		if ours[uid] != at {
			t.Errorf("seed %d: pod %s is deleted at %v, want %v", line.seed, uid, ours[uid], at)
		}
	}
	theirs := upstream(t, line, changes, evictions).gone
	pods := deletions(line, changes, ours, theirs)

	a.mu.Lock()
	defer a.mu.Unlock()
	if a.played++; len(c.found)+len(pods) == 0 {
		a.same++
	}
	for _, frames := range o.film {
		a.states += len(frames)
	}
	a.deleted += len(ours)
	a.differing += len(c.found) + len(pods)
	var lines []string
	for _, f := range c.found {
		a.count(f.why, f.String(), &lines)
	}
	for _, d := range pods {
		if d.more {
			a.more++
		}
		a.count(d.why, fmt.Sprintf("  pod %s goes here at %v, there at %v", d.uid, d.ours, d.theirs), &lines)
	}
	if len(lines) > 0 {
		t.Errorf("seed %d has unexplained differences from upstream:\n%s\n%s", line.seed, strings.Join(lines, "\n"), c.story())
	}
}

// count counts a difference, and records it if it is unexplained.
func (a *tally) count(why, text string, unexplained *[]string) {
	if why != "" {
		a.by[why]++
		return
	}
	a.unexplained++
	*unexplained = append(*unexplained, text)
}

// story returns the changes of a timeline, and the results of both.
func (c *comparison) story() string {
	var out strings.Builder
	for _, trouble := range c.line.troubles {
		fmt.Fprintf(&out, "  %v %s %s\n", trouble.at, trouble.object, trouble.what)
	}
	for _, name := range c.line.names {
		fmt.Fprintf(&out, "  %s zone %s", name, c.line.zones[name])
		for _, s := range c.line.lives[name] {
			fmt.Fprintf(&out, " %v-%v:%s", s.from, s.to, [...]string{"alive", "notReady", "silent"}[s.is])
		}
		out.WriteString("\n")
		for _, what := range []string{ready, evicts} {
			fmt.Fprintf(&out, "    %s: here %v there %v\n", what, c.films[here][nodeIs(name, what)], c.films[there][nodeIs(name, what)])
		}
	}
	for zone, rates := range c.rates[here] {
		fmt.Fprintf(&out, "  zone %s: here %v tokens %v\n    there %v tokens %v\n", zone, rates, c.tokens[here][zone], c.rates[there][zone],
			c.tokens[there][zone])
	}
	for _, f := range c.found {
		fmt.Fprintln(&out, f)
	}
	return out.String()
}
