package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/agent"
	"jettison/internal/base/commandline"
	"jettison/internal/base/logpipe"
	"jettison/internal/cli/flags"
	"jettison/internal/node/config"
	"jettison/internal/node/kill"
)

// runHelp returns the description of jettison run.
func runHelp() string {
	return `run watches this node until SIGTERM or SIGINT. It reads its configuration again at SIGHUP and when a
configuration file changes; it keeps the previous configuration if the new one is invalid, and logs
the error. run needs root, the node's cgroup v2 hierarchy, its /proc, and the container runtime's
socket. docs/operate/privileges.md describes the privileges of a DaemonSet.

Configuration is merged in this order; later layers override earlier ones:

  1. defaults: ` + defaultThresholds() + `
  2. the node's kubelet, if it has one: its file, drop-ins and flags. If an earlier run saw a
     kubelet that is down now, and the agent has no configuration file, run waits up to 15 s for it
  3. one file of kind AgentConfiguration: --config, or ` + config.DefaultPath + ` if it exists
  4. CONTAINER_RUNTIME_ENDPOINT and IMAGE_SERVICE_ENDPOINT
  5. flags

If --config names a KubeletConfiguration, it is the only configuration file. "jettison config print"
shows the result. Alongside a kubelet, signals of disks and inodes only set conditions, unless the
configuration sets disk: act.`
}

// runCommand returns the command jettison run.
func runCommand(stderr io.Writer) *cobra.Command {
	var places config.Places
	var log commandline.Log
	var ladder string
	o := agent.Options{Version: version}
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Run the agent: watch this node and evict pods when a threshold is met",
		Long:    runHelp(),
		Example: "  jettison run\n  jettison run --config /var/lib/kubelet/config.yaml --dry-run",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			o.Hangup = hangup
			pipe := logpipe.New(stderr, pipeLine(log.JSON()))
			defer pipe.Close(time.Second)
			o.LogDropped = pipe.Dropped
			var err error
			places.ProcMount, places.StateDir = o.ProcMount, config.Default().StateDir
			places.Waiting = func(why string) {
				//log: An earlier run saw a kubelet that is down now. The agent waits up to 15 s for its
				//  configuration and watches nothing until then.
				//do: Start the kubelet, or give the agent its own configuration file.
				o.Log.Warn("waiting for the kubelet and its configuration", "evidence", why)
			}
			if o.Log, err = log.Open(pipe); err != nil {
				return err
			}
			if places.Record != "" {
				if places.Record, err = filepath.Abs(places.Record); err != nil {
					return commandline.Usage(err)
				}
			}
			if o.Config, err = config.Find(cmd.Context(), places); err != nil {
				return commandline.Usage(err)
			}
			if o.Ladder, err = kill.ParseLadder(ladder); err != nil {
				return commandline.Usage(fmt.Errorf("--ladder: %w", err))
			}
			reload := places // a reload does not wait for a missing kubelet: the current values stay
			reload.StateDir, reload.Waiting = "", nil
			o.Find = func(ctx context.Context) (*config.Loaded, error) { return config.Find(ctx, reload) }
			ctx, appeared := watchForKubelet(cmd.Context(), o)
			err = agent.Run(ctx, o)
			if appeared() && err == nil && cmd.Context().Err() == nil {
				pipe.Close(time.Second)
				return restart()
			}
			if configErr := (agent.ConfigError{}); errors.As(err, &configErr) {
				return commandline.Usage(err)
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.AddConfig(f, &places)
	f.StringVar(&places.Record, "record", "",
		"file for recorded frames, see jettison replay (default: field record)")
	f.BoolVar(&o.DryRun, "dry-run", false, "decide and log, but kill nothing")
	log.Add(f)
	flags.AddMounts(f, &o.CgroupMount, &o.ProcMount, &o.HostRoot)
	f.StringVar(&ladder, "ladder", "",
		"steps of the kill ladder to use, for comparisons (default all)")
	_ = f.MarkHidden("ladder") // cannot fail: the flag exists
	return cmd
}

// defaultThresholds lists the default thresholds for the help text, three on a line.
func defaultThresholds() string {
	var all, lines []string
	for _, t := range config.Default().Thresholds {
		all = append(all, t.String())
	}
	for line := range slices.Chunk(all, 3) {
		lines = append(lines, strings.Join(line, ", "))
	}
	return strings.Join(lines, ",\n     ")
}

// pipeLine returns a function that formats a message of the log pipe itself, such as dropped lines.
func pipeLine(inJSON bool) func(text string) []byte {
	return func(text string) []byte {
		if !inJSON {
			return []byte("jettison: " + text + "\n")
		}
		var line bytes.Buffer
		slog.New(slog.NewJSONHandler(&line, nil)).Warn(text)
		return line.Bytes()
	}
}
