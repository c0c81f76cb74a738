package read

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"text/tabwriter"
	"time"
)

// contender is one of several ways to read the same pods.
type contender struct {
	what string
	base string // the contender that it is compared with
	look func() error
	node bool // of the node: a cost per pod would be meaningless

	allocs float64 // a look
	times  []time.Duration
}

func (c *contender) p50() time.Duration {
	slices.Sort(c.times)
	return c.times[len(c.times)/2]
}

// A turn is several looks in a row. On a shared machine single looks differ by half, so turns
// shorter than turnTime are repeated.
const (
	turnTime  = 60 * time.Millisecond
	turnLooks = 20 // at most
)

// compete gives each contender a turn per round, in random order, so that load of the machine
// affects all of them alike. No contender pays for another's garbage.
func compete(b *testing.B, contenders []*contender) {
	b.Helper()
	for _, c := range contenders {
		var err error
		c.allocs = testing.AllocsPerRun(2, func() { err = c.look() })
		if err != nil {
			b.Fatalf("first look of contender %s: %v", c.what, err)
		}
	}
	for b.Loop() {
		for _, i := range rand.Perm(len(contenders)) {
			runtime.GC()
			if err := contenders[i].turn(); err != nil {
				b.Fatalf("turn of contender %s failed: %v", contenders[i].what, err)
			}
		}
	}
}

func (c *contender) turn() error {
	spent := time.Duration(0)
	for n := 0; n < turnLooks && spent < turnTime; n++ {
		began := time.Now()
		err := c.look()
		took := time.Since(began)
		if err != nil {
			return err
		}
		c.times, spent = append(c.times, took), spent+took
	}
	return nil
}

// podTable prints the measurements for different numbers of pods.
type podTable struct{ *tabwriter.Writer }

func newPodTable(title, base, ours string) podTable {
	t := podTable{tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)}
	fmt.Fprintf(t, "\n%s\n", title)
	fmt.Fprintf(t, "pods\tper look, ms\tper pod, µs\tallocs\t/ %s\t/ %s\t  what\n", base, ours)
	return t
}

// add prints a row for each contender, with the ratios to its base and to ours.
func (t podTable) add(pods int, contenders []*contender, ours string) {
	find := func(what string) *contender {
		i := slices.IndexFunc(contenders, func(c *contender) bool { return c.what == what })
		if i < 0 {
			return nil
		}
		return contenders[i]
	}
	for _, c := range contenders {
		ratio, slower := "", ""
		if base := find(c.base); base != nil {
			ratio = fmt.Sprintf("%.2f", float64(c.p50())/float64(base.p50()))
		}
		if o := find(ours); o != nil && o != c && (c.base == o.base || c.what == o.base) {
			slower = fmt.Sprintf("%.1f", float64(c.p50())/float64(o.p50()))
		}
		perPod := ""
		if !c.node {
			perPod = fmt.Sprintf("%.1f", float64(c.p50())/1e3/float64(pods))
		}
		fmt.Fprintf(t, "%d\t%.2f\t%s\t%.0f\t%s\t%s\t  %s\n", pods, float64(c.p50())/1e6, perPod, c.allocs, ratio, slower, c.what)
	}
}
