package check

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"jettison/internal/observe"
	"jettison/internal/show"
	"jettison/internal/sources"
	"jettison/stats"
)

// printSources prints a line for each. The error is that of one that the agent cannot do without.
func printSources(w io.Writer, now time.Time, s *sources.Sources, look *observe.Look) error {
	line := func(name string, err error, detail string) {
		if err != nil {
			fmt.Fprintf(w, "%s\tfailed\t%s\n", name, show.OneLine(err.Error()))
			return
		}
		fmt.Fprintf(w, "%s\tok\t%s\n", name, detail)
	}
	controllers, err := s.FS.Controllers()
	line("cgroup v2 "+s.FS.Mount(), err, "controllers "+strings.Join(controllers, " "))
	where := "this process is in no pod"
	if s.Reader.Self() != "" {
		where = "this process is in /" + s.Reader.Self()
	}
	line("cgroups of pods and /proc", look.Err, fmt.Sprintf("%d pods; %s", len(look.Summary.Pods), where))
	r := look.Runtime
	line("runtime "+r.Endpoint, r.Err, fmt.Sprintf("%s %s, %d pods listed in %v, cgroup driver %s", r.Version.Name, r.Version.Version,
		len(r.Pods), r.Listed.Round(time.Millisecond), cmp.Or(r.Driver, "unknown")))
	for _, c := range r.Conditions {
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
	if r.Err != nil {
		return r.Err
	}
	return nil
}
