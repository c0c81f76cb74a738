package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// killLimit is the time after which a trial counts as one without a kill.
const killLimit = 20 * time.Second

// byAgent is the agent as a killer.
type byAgent struct {
	*reactor
	read int // offset up to which its log was read
}

// startReacting runs the agent with a setting of the kill ladder; empty: the default.
func (r *reactor) startReacting(ladder string) *byAgent {
	r.t.Helper()
	var args []string
	if ladder != "" {
		args = []string{"--ladder=" + ladder}
	}
	r.startAgent(config(""), args...)
	return &byAgent{reactor: r}
}

// hasLadder reports whether this agent's kill ladder can be set.
func (r *reactor) hasLadder() bool {
	_, err := r.Shell(r.ctx, "/usr/local/bin/jettison run --ladder=cgroup.kill --help > /dev/null 2>&1")
	return err == nil
}

func (j *byAgent) stop() {
	j.t.Helper()
	if err := j.agent.Remove(j.ctx); err != nil {
		j.t.Fatal(err)
	}
	j.agent.Expected = vm.Any
	j.agent = nil
}

func (j *byAgent) signal() string               { return guestapi.Lower }
func (j *byAgent) cgroup(victim *vm.Pod) string { return victim.Cgroup }

// arm reads the log so far, so that later lines are of this trial.
func (j *byAgent) arm() {
	j.t.Helper()
	_, next, err := j.agent.LogFrom(j.ctx, j.read)
	if err != nil {
		j.t.Fatal(err)
	}
	j.read = next
}

func (j *byAgent) disarm() {}

// wait waits until the agent logs its victim, and returns the time at which it had written the
// kill.
func (j *byAgent) wait(victim *vm.Pod) (killed int64, fault string) {
	j.t.Helper()
	err := j.Eventually(j.ctx, killLimit, "the agent has evicted", func(ctx context.Context) error {
		lines, next, err := j.agent.LogFrom(ctx, j.read)
		if err != nil {
			return err
		}
		j.read = next
		for _, l := range lines {
			switch {
			case l.Msg != "evicted":
			case l.Fields["uid"] != string(victim.Object.UID):
				fault = fmt.Sprintf("evicted %v", l.Fields["victim"])
			default:
				killed = int64(l.Duration("killedAtMonotonic"))
				if l.Fields["killToMemoryBack"] == "not recovered" {
					fault = "memory not back by the agent's word"
				}
				return nil
			}
		}
		return errors.New("eviction not logged yet")
	})
	if err != nil && fault == "" {
		fault = "no kill"
	}
	return killed, fault
}

// byEarlyOOM is earlyoom as a killer. It kills processes, not pods: its victim is the container.
type byEarlyOOM struct {
	*reactor
	daemon *vm.EarlyOOM
}

func (e *byEarlyOOM) signal() string { return guestapi.MemAvailable }
func (e *byEarlyOOM) cgroup(victim *vm.Pod) string {
	return victim.Cgroup + "/" + victim.Containers[0]
}

func (e *byEarlyOOM) arm() {
	e.t.Helper()
	var err error
	if e.daemon, err = e.StartEarlyOOM(e.ctx, defaultThreshold); err != nil {
		e.t.Fatal(err)
	}
}

// wait waits until the victim's container is empty. The kernel's trace has the time of the kill.
func (e *byEarlyOOM) wait(victim *vm.Pod) (killed int64, fault string) {
	e.t.Helper()
	if err := e.Eventually(e.ctx, killLimit, "earlyoom has killed", func(ctx context.Context) error {
		text, err := e.ReadFile(ctx, "/sys/fs/cgroup/"+e.cgroup(victim)+"/cgroup.events", 0)
		if err == nil && strings.Contains(string(text), "populated 1") {
			return errors.New("container not empty yet")
		}
		return nil // empty, or removed
	}); err != nil {
		fault = "no kill"
		e.t.Log(e.daemon.Log())
	}
	return 0, fault
}

func (e *byEarlyOOM) disarm() {
	e.t.Helper()
	if e.daemon == nil {
		return
	}
	if err := e.daemon.Stop(e.ctx); err != nil {
		e.t.Error(err)
	}
	e.daemon = nil
}
