package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
	"jettison/stats"
	"jettison/stats/read"
)

// addSource adds the answer of one source.
func (r *Result) addSource(name string, err error, detail string) {
	if err != nil {
		detail = output.OneLine(err.Error())
	}
	r.Sources = append(r.Sources, Source{Name: name, OK: err == nil, Detail: detail})
}

// addSources adds the answer of each source; from is the origin of the runtime's socket path. It
// returns the error of a source that the agent needs.
func (r *Result) addSources(now time.Time, s *sources.Sources, look *observe.Look,
	from string) error {
	line := r.addSource
	controllers, err := s.FS.Controllers()
	line("cgroup v2 "+s.FS.Mount(), err, "controllers "+strings.Join(controllers, " "))
	where := "this process runs outside pods"
	if s.Reader.Self() != "" {
		where = "this process runs in /" + s.Reader.Self()
	}
	line("cgroups of pods and /proc", look.Err, output.Count(len(look.Summary.Pods), "pod")+
		"; "+where)
	if from != "" {
		line("socket of the runtime", nil, from)
	}
	runtime := look.Runtime
	line("runtime "+runtime.Endpoint, runtime.Err,
		fmt.Sprintf("%s %s, %s listed in %v, cgroup driver %s",
			runtime.Version.Name, runtime.Version.Version,
			output.Count(len(runtime.Pods), "pod"), runtime.Listed.Round(time.Millisecond), cmp.Or(runtime.Driver, "unknown")))
	for _, c := range runtime.Conditions {
		if !c.Status {
			line("runtime condition "+c.Type, fmt.Errorf("%s %s", c.Reason, c.Message), "")
		}
	}
	if look.HostErr != nil {
		line("host's root directory", look.HostErr, "")
	}
	for _, source := range look.Summary.Sources {
		detail := "not queried"
		if !source.Time.IsZero() {
			detail = fmt.Sprintf("answered %v ago", now.Sub(source.Time).Round(10*time.Millisecond))
		}
		line(source.Name, source.Err, detail)
	}
	outside := errors.Join(outsideError(runtime.Pods, runtime.Driver),
		unlocatedError(runtime.Pods, look.Summary.Pods, runtime.Driver))
	line("cgroups of containers", outside, insideDetail(runtime.Pods, runtime.Err))
	if o := look.Summary.Observe(now, stats.SignalMemoryAvailable, stats.MemoryAvailableLower); !o.OK {
		return errors.New("memory.available: " + o.Reason)
	}
	return errors.Join(runtime.Err, outside)
}

// insideDetail describes where containers run if no container runs outside its pod's cgroup, as far
// as is known.
func insideDetail(pods read.Index, runtimeErr error) string {
	n := 0
	for _, p := range pods {
		if len(p.Unlocated) > 0 {
			n++
		}
	}
	switch {
	case runtimeErr != nil:
		return "unknown, because the runtime does not list them"
	case n > 0:
		return "unknown for " + output.Count(n, "pod") + ", otherwise below their pods' cgroups"
	}
	return "below their pods' cgroups"
}

// outsideError returns an error if containers run outside their pods' cgroups. driver is the
// runtime's; empty: unknown.
func outsideError(pods read.Index, driver string) error {
	n, example, moved := 0, "", true
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		p := pods[uid]
		if n += len(p.Outside); n > 0 && example == "" {
			example = fmt.Sprintf("container %s of pod %s/%s", p.Outside[0].ID, p.PodRef.Namespace,
				p.PodRef.Name)
			if at := p.Outside[0].Cgroup; at != "" {
				example += " in /" + at
			} else {
				example += fmt.Sprintf(" (process %d)", p.Outside[0].Process.PID)
			}
		}
		for i := range p.Outside {
			moved = moved && p.Outside[i].Cgroup == ""
		}
	}
	switch {
	case n == 0:
		return nil
	case moved:
		return fmt.Errorf("%s outside the pods' cgroups, such as %s: something moved its process into "+
			"a cgroup with other processes, where only its memory is measured; restart the pod",
			output.Count(n, "container"), example)
	}
	return fmt.Errorf("%s outside the pods' cgroups, such as %s: the kubelet and the runtime use "+
		"different cgroup drivers, or the kubelet has cgroupsPerQOS: false; set the kubelet's cgroupDriver "+
		"to the runtime's (%s), or cgroupsPerQOS: true, and restart the pods",
		output.Count(n, "container"), example, cmp.Or(driver, "unknown"))
}

// unlocatedError returns an error if containers run whose processes are not known. Without a
// process from the runtime they are assumed in their pods' cgroups, unless the look (seen) found
// none.
func unlocatedError(pods read.Index, seen []stats.PodStats, driver string) error {
	n, example := 0, ""
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		p := pods[uid]
		unmeasured := slices.ContainsFunc(seen, func(s stats.PodStats) bool {
			return s.PodRef.UID == uid && !s.Located()
		})
		for _, c := range p.Unlocated {
			if c.Cgroup == "" && !unmeasured {
				continue
			}
			if n++; n > 1 {
				continue
			}
			example = fmt.Sprintf("container %s of pod %s/%s", c.ID, p.PodRef.Namespace,
				p.PodRef.Name)
			if c.Cgroup != "" {
				example += " in /" + c.Cgroup
			}
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be located, such as %s: the runtime reports no process, or one "+
		"that cannot be shown to be the container's (Kata and gVisor name cgroups for the "+
		"sandbox), so the agent does not measure it and only the runtime kills it; set the "+
		"kubelet's cgroupDriver to the runtime's (%s), for Kata sandbox_cgroup_only = true, and "+
		"restart the pods",
		output.Count(n, "container"), example, cmp.Or(driver, "unknown"))
}
