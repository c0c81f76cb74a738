package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// olderVariable names the binary of an older agent on this machine. BenchmarkReactChurn and
// BenchmarkReactCrossing measure it next to the current one.
const olderVariable = "JETTISON_OLDER"

// olderProgram is its path in the guest.
const olderProgram = "/usr/local/bin/jettison-older"

// churners are the cgroups in which processes create and remove cgroups of pods.
var churners = []string{"kubepods", "kubepods/besteffort", "kubepods/besteffort", "kubepods/burstable"}

// BenchmarkReactChurn measures like BenchmarkReactCrossing and BenchmarkReactRelease, while several
// processes create and remove pods' cgroups under memory pressure: each mkdir and rmdir holds
// kubepods' directory and cgroup_mutex through direct reclaim. A stream through the page cache
// keeps free memory at the watermarks. If JETTISON_OLDER names an older agent, it alternates with
// this one.
func BenchmarkReactChurn(b *testing.B) {
	r := newReactor(b, vm.Options{MiB: 1536})
	t := newSampledTable(fmt.Sprintf("kernel %s, pods' cgroups come and go under memory pressure, ms", r.Kernel),
		"who", "crossed to kill p50", "p90", "max", "crossed to above the threshold p50", "p90", "max", "count", "wrong")
	who := r.agents()
	outcomes := map[string][]outcome{}
	for range turns {
		for _, name := range who {
			outcomes[name] = append(outcomes[name], r.churned(name, trials(20)/turns)...)
		}
	}
	for _, name := range who {
		var kill, above []time.Duration
		wrong := faults{}
		for _, o := range outcomes[name] {
			t.sampled(o.Sample)
			wrong.add(o.faults)
			if o.Crossed != 0 && o.killed != 0 {
				kill = append(kill, elapsed(o.Crossed, max(o.killed, o.Crossed)))
			}
			if o.Crossed != 0 && o.Back != 0 {
				above = append(above, elapsed(o.Crossed, o.Back))
			}
		}
		k, a := spread(kill), spread(above)
		t.row(name, k[0], k[1], k[3], a[0], a[1], a[3], len(outcomes[name]), wrong)
	}
	t.print()
	reportOnce(b)
}

// turns is the number of turns of each agent.
const turns = 4

// older is the older agent's name in tables.
const older = "older"

// agents returns the names of the measured agents: this one and, if set, an older one, which it
// copies into the guest.
func (r *reactor) agents() []string {
	r.t.Helper()
	program := os.Getenv(olderVariable)
	if program == "" {
		return []string{"jettison"}
	}
	if err := r.Upload(r.ctx, program, olderProgram); err != nil {
		r.t.Fatal(err)
	}
	r.shell("chmod 755 " + olderProgram)
	return []string{"jettison", older}
}

// reacting starts one of the agents.
func (r *reactor) reacting(name string) *byAgent {
	r.t.Helper()
	if name != older {
		return r.startReacting("")
	}
	var err error
	if r.agent, err = r.StartAgentFrom(r.ctx, olderProgram, config("")); err != nil {
		r.t.Fatal(err)
	}
	r.agentLogs("started", 1)
	return &byAgent{reactor: r}
}

// churned makes trials with one agent during the churn.
func (r *reactor) churned(name string, count int) (out []outcome) {
	r.t.Helper()
	k := r.reacting(name)
	r.churn()
	defer r.calm()
	l := load{name: name, pod: leaking(), headroom: 30 * mib, rate: "100Mi"}
	for range count {
		o := r.try(k, l)
		fmt.Printf("-- %s: killed %v, empty %v, back %v, %v\n",
			name, elapsed(o.Crossed, o.killed), elapsed(o.Crossed, o.Empty), elapsed(o.Crossed, o.Back), o.faults)
		out = append(out, o)
	}
	k.stop()
	return out
}

const churnPIDs = "/run/churn.pids"

// churn creates and removes pods' cgroups until calm is called.
func (r *reactor) churn() {
	r.t.Helper()
	r.shell("truncate -s 64G /var/churn.stream") // sparse: fills the page cache without disk space
	commands := [][]string{{"cat", "/var/churn.stream"}}
	for _, c := range churners {
		commands = append(commands, []string{"/usr/local/bin/workload", "churn", "/sys/fs/cgroup/" + c})
	}
	var pids []string
	for i, c := range commands {
		output := "/var/log/churn.log"
		if i == 0 {
			output = "/dev/null"
		}
		pid, err := r.Start(r.ctx, output, c...)
		if err != nil {
			r.t.Fatal(err)
		}
		pids = append(pids, strconv.Itoa(pid))
	}
	r.shell("echo " + strings.Join(pids, " ") + " > " + churnPIDs)
	r.until("the churn has begun", func() error {
		_, err := r.Shell(r.ctx, "ls -d /sys/fs/cgroup/kubepods/pod*-c0de-* /sys/fs/cgroup/kubepods/besteffort/pod*-c0de-* > /dev/null")
		return err
	})
}

// calm ends the churn and removes its leftovers.
func (r *reactor) calm() {
	r.t.Helper()
	r.shell("test -f " + churnPIDs + " || exit 0; kill -9 $(cat " + churnPIDs + "); rm -f " + churnPIDs + " /var/churn.stream; sleep 0.2; " +
		"for d in $(find /sys/fs/cgroup/kubepods -depth -type d -path '*-c0de-*'); do rmdir $d; done; true")
}
