package e2e

import (
	"fmt"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// limitHits is what a pod's cgroup has counted: of memory.events high and max, of memory.stat pages.
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

// A pod loses, and reads in again, within a factor of what a pressure signal takes it to lose each time that it hits a limit of its own
// (eviction/cause.go, reclaimedPerHit): if it were more than twice that, who thrashes at its own limit would be taken for one that others
// take from; far less, and one that others take from would be taken for the cause.
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
						err = fmt.Errorf("%d pages", now.refaulted)
					}
					return err
				})
				return now
			}
			before := counted(limitHits{})
			after := counted(before)
			hits := after.hits - before.hits
			t.Logf("%s, memory.%s: %d hits, of each %d KiB taken and %d KiB read in again", how, limit, hits,
				(after.stolen-before.stolen)*page/kib/max(1, hits), (after.refaulted-before.refaulted)*page/kib/max(1, hits))
			if each := (after.refaulted - before.refaulted) * page / max(1, hits); hits == 0 || each > 2*reckoned || each < reckoned/8 {
				t.Errorf("want from %d to %d KiB", reckoned/8/kib, 2*reckoned/kib)
			}
			p.Fate = vm.Dies
			n.shell("echo 1 > /sys/fs/cgroup/" + p.Cgroup + "/cgroup.kill")
			n.dies(p)
		}
	}
}
