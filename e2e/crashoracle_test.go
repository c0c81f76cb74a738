package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/api"
)

var errStillThere = errors.New("it still exists")

// awaitSettled waits until everything that must be removed is gone, and no eviction is in progress: a
// pass has ended. The agent checks logs every ten seconds, and retries failures after up to a
// minute and a half.
func (c *crashes) awaitSettled() {
	c.t.Helper()
	c.until("all that has to go is gone", func() error {
		all, err := c.Inventory(c.ctx)
		if err != nil {
			return err
		}
		for _, x := range all.Containers {
			main := x.PodSandboxId == c.crashing.sandbox && x.Metadata.Name == "main" && x.Id != c.lastDead
			if x.PodSandboxId == c.leaker && x.State == cri.ContainerState_CONTAINER_EXITED { // perhaps killed by the kernel: as a kubelet does
				_ = c.StopSandbox(c.ctx, c.leaker)
			}
			if main || slices.Contains(c.dead, x.Id) || slices.Contains(c.doomed, x.PodSandboxId) {
				return fmt.Errorf("container %s of %s: %w", x.Id, x.Labels["io.kubernetes.pod.name"], errStillThere)
			}
		}
		for _, s := range all.Sandboxes {
			if slices.Contains(c.doomed, s.Id) {
				return fmt.Errorf("sandbox %s of %s: %w", s.Id, s.Metadata.Name, errStillThere)
			}
		}
		for _, i := range all.Images {
			if slices.Contains(i.RepoTags, gcTag("junk-0")) {
				return fmt.Errorf("image %s: %w", i.Id, errStillThere)
			}
		}
		for _, path := range c.doomedFiles {
			if res, err := c.Exec(c.ctx, "/bin/sh", "-c", "test -e "+path+" || test -L "+path); err != nil || res.Code == 0 {
				return fmt.Errorf("%s: %w (%v)", path, errStillThere, err)
			}
		}
		return c.tidy()
	})
}

// tidy returns nil if no temporary file is left, and no record has an eviction in progress. A file
// that is being written is not a leftover: the caller retries.
func (c *crashes) tidy() error {
	logs := "/var/log/pods"
	if c.booted {
		logs = ""
	}
	found := c.shell("cd /var/lib/jettison 2>/dev/null && busybox find . " + logs + " -name '*.tmp'")
	if found != "" {
		return fmt.Errorf("%s: %w", strings.TrimSpace(found), errStillThere)
	}
	for _, r := range c.allRecords() {
		if r.Outcome == api.OutcomeRunning {
			return fmt.Errorf("record %s of %s has an eviction in progress", r.ID, r.Pod.Name)
		}
	}
	return nil
}

// expectKept asserts that everything that must be kept exists, and that the agent runs.
func (c *crashes) expectKept() {
	c.t.Helper()
	c.shell(fmt.Sprintf("kill -0 %d", c.pid))
	all := c.listNode("in the end")
	for _, x := range all.Containers {
		if slices.Contains(c.running, x.Id) && x.State != cri.ContainerState_CONTAINER_RUNNING {
			c.t.Errorf("container %s of %s is %v, want it running", x.Metadata.Name, x.Labels["io.kubernetes.pod.name"], x.State)
		}
	}
	c.countWholeLines(c.lines, false)
	now := c.wholeRecords()
	for id, before := range c.records {
		if now[id] != before {
			c.t.Errorf("record %s was\n%s\nand is\n%s", id, before, now[id])
		}
	}
	log, err := c.ReadFile(c.ctx, crashAgentLog, c.offset)
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		for _, bad := range []string{"is not whole", "saved state incomplete", "panic", "fatal error", "starts anew", "garbage collection state missing"} {
			if strings.Contains(line, bad) && (c.begun || bad != "starts anew" && bad != "garbage collection state missing") {
				c.t.Errorf("agent logged a warning or an error: %s", line)
			}
		}
	}
}

// listNode asserts that the containers that must be kept exist, dead or alive, with their images and
// logs.
func (c *crashes) listNode(when string) (all struct {
	Containers []*cri.Container
}) {
	c.t.Helper()
	inventory, err := c.Inventory(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	var containers, images []string
	for _, x := range inventory.Containers {
		containers = append(containers, x.Id)
	}
	for _, i := range inventory.Images {
		images = append(images, i.RepoTags...)
	}
	for _, id := range append([]string{c.lastDead}, c.running...) {
		if !slices.Contains(containers, id) {
			c.t.Errorf("%s: container %s is lost: running %v, last dead %s, have %v", when, id, c.running, c.lastDead, containers)
		}
	}
	if !slices.Contains(images, gcTag("used")) {
		c.t.Errorf("%s: image %s is lost, have %v", when, gcTag("used"), images)
	}
	c.shell(fmt.Sprintf("test -e %s/main/%d.log", c.crashing.config.LogDirectory, c.deaths-1))
	all.Containers = inventory.Containers
	return all
}

// countLogLines returns the number of lines in the talker's log, which must have no gap. It reads hard links,
// because the agent moves files faster than a slow node reads them, and again if the agent moved one meanwhile.
func (c *crashes) countLogLines() int {
	c.t.Helper()
	return c.countWholeLines(0, false)
}

// countWholeLines works as countLogLines for at least so many lines. The last line may be incomplete. If a log
// exists both plain and compressed, the plain one counts: the other is complete, but the agent has
// not removed the plain one yet. torn ignores everything after so many lines: the runtime does not
// sync logs, and after a power cut ext4 may have the size of a file with an unwritten last block.
func (c *crashes) countWholeLines(least int, torn bool) (last int) {
	c.t.Helper()
	enough := 1 << 30
	if torn {
		enough = least
	}
	script := fmt.Sprintf(`s=/var/log/read; n=%d.log; mkdir -p $s; rm -f $s/*; cd %s/talk; for f in $n.* $n; do [ ! -e "$f" ] || ln $f $s/ 2>/dev/null; done; cd $s
		{ for f in $n.*; do case $f in *.tmp|"$n.*") ;; *.gz) [ -e ${f%%.gz} ] || busybox zcat $f;; *) cat $f;; esac; done; cat $n; } 2>&1 |
		sed '$d' | busybox awk 'last >= %d { next } $3 != "F" { bad = bad " " $0 } { n = $4 + 0; if (n != last + 1) bad = bad " " last ">" n; last = n } END { print last + 0, bad }'`,
		c.attempt, c.talker.config.LogDirectory, enough)
	c.until(fmt.Sprintf("%d lines are in the log", least), func() error {
		out := strings.SplitN(strings.TrimSpace(c.shell(script)), " ", 2)
		if len(out) > 1 {
			return fmt.Errorf("gaps: %.300s", out[1])
		}
		if _, err := fmt.Sscan(out[0], &last); err != nil || last < least {
			return fmt.Errorf("log has %d lines (%v), want %d", last, err, least)
		}
		return nil
	})
	return last
}

// allRecords returns the records that jettison records prints.
func (c *crashes) allRecords() (out []api.Record) {
	c.t.Helper()
	for line := range strings.Lines(c.shell("[ ! -e /var/lib/jettison/records.jsonl ] || /usr/local/bin/jettison records -o jsonl")) {
		var r api.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.t.Fatalf("parse the output of jettison records: %v in %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// wholeRecords returns the records of ended evictions, as text, by ID.
func (c *crashes) wholeRecords() map[string]string {
	c.t.Helper()
	out := map[string]string{}
	for _, r := range c.allRecords() {
		if r.Outcome != api.OutcomeRunning {
			text, err := json.Marshal(r)
			if err != nil {
				c.t.Fatal(err)
			}
			out[r.ID] = string(text)
		}
	}
	return out
}
