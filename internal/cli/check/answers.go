package check

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
	"jettison/stats"
)

// source takes how one answered.
func (r *Result) source(name string, err error, detail string) {
	if err != nil {
		detail = output.OneLine(err.Error())
	}
	r.Sources = append(r.Sources, Source{Name: name, OK: err == nil, Detail: detail})
}

// askSources takes how each answered; from is why the socket of the runtime is that one. The error
// is that of one that the agent cannot do without.
func (r *Result) askSources(now time.Time, s *sources.Sources, look *observe.Look,
	from string) error {
	line := r.source
	controllers, err := s.FS.Controllers()
	line("cgroup v2 "+s.FS.Mount(), err, "controllers "+strings.Join(controllers, " "))
	where := "this process is in no pod"
	if s.Reader.Self() != "" {
		where = "this process is in /" + s.Reader.Self()
	}
	line("cgroups of pods and /proc", look.Err, fmt.Sprintf("%d pods; %s", len(look.Summary.Pods),
		where))
	if from != "" {
		line("socket of the runtime", nil, from)
	}
	runtime := look.Runtime
	line("runtime "+runtime.Endpoint, runtime.Err,
		fmt.Sprintf("%s %s, %d pods listed in %v, cgroup driver %s",
			runtime.Version.Name, runtime.Version.Version,
			len(runtime.Pods), runtime.Listed.Round(time.Millisecond), cmp.Or(runtime.Driver, "unknown")))
	for _, c := range runtime.Conditions {
		if !c.Status {
			line("runtime condition "+c.Type, fmt.Errorf("%s %s", c.Reason, c.Message), "")
		}
	}
	if look.HostErr != nil {
		line("host's root directory", look.HostErr, "")
	}
	for _, source := range look.Summary.Sources {
		detail := "not asked"
		if !source.Time.IsZero() {
			detail = fmt.Sprintf("answered %v ago", now.Sub(source.Time).Round(10*time.Millisecond))
		}
		line(source.Name, source.Err, detail)
	}
	if o := look.Summary.Observe(now, stats.SignalMemoryAvailable, stats.MemoryAvailableLower); !o.OK {
		return errors.New("memory.available: " + o.Reason)
	}
	return runtime.Err
}
