package e2e

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// Without a kubelet the agent rotates the logs of live containers, and loses no line.
func TestRotatedLogsLoseNoLine(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("containerLogMaxSize: 100Ki\ncontainerLogMaxFiles: 50"))
	const lines = 4000
	p := n.run(vm.NewPod("talker", "", "", fmt.Sprintf("log -rate 12Ki -line 100 -size %d", lines*100)))
	dir := path.Dir(p.LogPath("main"))
	n.until("all lines are written and in files", func() error {
		if got := n.number(fmt.Sprintf("cd %s && { cat 0.log; for f in 0.log.*; do case $f in *.gz) busybox zcat $f;; *) cat $f;; esac; done; } 2>/dev/null | grep -c ' xxx' || true", dir)); got != lines {
			return fmt.Errorf("logs have %d lines", got)
		}
		return nil
	})
	files := strings.Fields(n.shell("ls " + dir))
	compressed := 0
	for _, f := range files {
		if strings.HasSuffix(f, ".gz") {
			compressed++
		}
	}
	if compressed == 0 || len(files) < 3 {
		t.Errorf("log files = %v, want some compressed and one that is not", files)
	}
	t.Logf("%v; %v", files, n.agentLogs("rotated logs", 1).Fields)
}
