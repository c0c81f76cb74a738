package e2e

import (
	"fmt"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// limitHits are counters of a pod's cgroup: high and max of memory.events, page counts of
// memory.stat.
type limitHits struct{ hits, refaulted, stolen int64 }

func (n *node) limitHits(p *vm.Pod) (out limitHits, err error) {
	text, err := n.Shell(n.ctx, "cd /sys/fs/cgroup/"+p.Cgroup+" && cat memory.events memory.stat")
	for line := range strings.Lines(text) {
		var key string
		var value int64
		if _, err := fmt.Sscan(line, &key, &value); err != nil {
			return out, fmt.Errorf("%q: %w", line, err)
		}
		switch key {
		case "high", "max":
			out.hits += value
		case "workingset_refault_file", "workingset_refault_anon":
			out.refaulted += value
		case "pgsteal":
			out.stolen += value
		}
	}
	return out, err
}

// The memory that a pod loses and reads in again at each hit of its own limit is within a factor of
// the value that a pressure signal assumes (eviction/cause.go, reclaimedPerHit). If it were more
// than twice that, a pod that thrashes at its own limit would be treated as suffering from others.
// If it were far less, a pod suffering from others would be treated as the cause.
func TestWhatAHitOfALimitReclaims(t *testing.T) {
	const reckoned, kib, page = 512 << 10, 1 << 10, 4 << 10
	n := startNode(t)
	t.Log("multi-generational LRU: ", n.shell("cat /sys/kernel/mm/lru_gen/enabled 2> /dev/null || echo none"))
	for _, how := range []string{"thrash", "thrash -map"} {
		for _, limit := range []string{"max", "high"} {
			pod := vm.NewPod("thrasher", "1Mi", map[string]string{"max": "48Mi"}[limit], how+" -size 150Mi /file")
			p := n.run(pod)
			if limit == "high" {
				n.shell("echo 48M > /sys/fs/cgroup/" + p.Cgroup + "/memory.high")
			}
			counted := func(more limitHits) (now limitHits) {
				n.until("it reads in again", func() (err error) {
					if now, err = n.limitHits(p); err == nil && now.refaulted < more.refaulted+1000 {
						err = fmt.Errorf("only %d pages refaulted", now.refaulted)
					}
					return err
				})
				return now
			}
			before := counted(limitHits{})
			after := counted(before)
			hits := after.hits - before.hits
			t.Logf("%s, memory.%s: %d hits, each with %d KiB reclaimed and %d KiB read in again", how, limit, hits,
				(after.stolen-before.stolen)*page/kib/max(1, hits), (after.refaulted-before.refaulted)*page/kib/max(1, hits))
			if each := (after.refaulted - before.refaulted) * page / max(1, hits); hits == 0 || each > 2*reckoned || each < reckoned/8 {
				t.Errorf("memory reclaimed per hit out of range: want from %d to %d KiB", reckoned/8/kib, 2*reckoned/kib)
			}
			if err := p.Remove(n.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}
