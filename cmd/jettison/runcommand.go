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

func runCommand(stderr io.Writer) *cobra.Command {
	var places config.Places
	var log commandline.Log
	var ladder string
	o := agent.Options{Version: version}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Watch this node and evict when it runs short of memory, disk or what else has a threshold",
		Long: `run watches this node until it is told to stop (SIGTERM, SIGINT). At SIGHUP, and when a file of it has changed, it reads its
configuration again; a wrong one leaves what holds, and the log says why. It needs root, the node's cgroup v2 hierarchy,
its /proc and the socket of its container runtime; docs/operate/privileges.md says how a DaemonSet gives it these.

Configuration comes in layers, and a later one counts: the defaults (` + defaultThresholds() + `);
what the node's kubelet goes by, if there is one: its file, its drop-ins, its flags (without a file of the agent's own, one that was
seen before and is down at the moment is waited for, at most 15 s); one YAML file of kind AgentConfiguration,
--config or else ` + config.DefaultPath + ` if it is there; CONTAINER_RUNTIME_ENDPOINT and IMAGE_SERVICE_ENDPOINT; flags.
With --config, a kubelet's own KubeletConfiguration is taken as it is, and no other. "jettison config print" shows what holds.
Beside a kubelet signals of disks and inodes only set conditions, unless the configuration says disk: act.`,
		Example: "  jettison run\n  jettison run --config /var/lib/kubelet/config.yaml --dry-run",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			o.Hangup = hangup
			pipe := logpipe.New(stderr, ownLine(log.JSON()))
			defer pipe.Close(time.Second)
			o.LogDropped = pipe.Dropped
			var err error
			places.ProcMount, places.StateDir = o.ProcMount, config.Default().StateDir
			places.Waiting = func(why string) {
				o.Log.Warn("waiting for the node's kubelet, for its configuration holds: nothing is watched "+
					"until then", "evidence", why)
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
			again := places // a kubelet that is not there is neither waited for nor missed: what holds stays
			again.StateDir, again.Waiting = "", nil
			o.Find = func(ctx context.Context) (*config.Loaded, error) { return config.Find(ctx, again) }
			ctx, came := untilKubelet(cmd.Context(), o)
			err = agent.Run(ctx, o)
			if came() && err == nil && cmd.Context().Err() == nil {
				pipe.Close(time.Second)
				return anew()
			}
			if wrong := (agent.ConfigError{}); errors.As(err, &wrong) {
				return commandline.Usage(err)
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.AddConfig(f, &places)
	f.StringVar(&places.Record, "record", "",
		"record frames of what is seen and done to this file, for jettison replay (default record of the configuration)")
	f.BoolVar(&o.DryRun, "dry-run", false, "decide and log, kill nothing")
	log.Add(f)
	flags.AddMounts(f, &o.CgroupMount, &o.ProcMount, &o.HostRoot)
	f.StringVar(&ladder, "ladder", "",
		"rungs of the kill ladder to use, for comparisons (default all)")
	_ = f.MarkHidden("ladder") // it is there
	return cmd
}

// defaultThresholds are those of an agent without a configuration, for people.
func defaultThresholds() string {
	var all []string
	for _, t := range config.Default().Thresholds {
		all = append(all, t.String())
	}
	return strings.Join(all, ", ")
}

// ownLine makes a line of what the log has to say of itself.
func ownLine(inJSON bool) func(text string) []byte {
	return func(text string) []byte {
		if !inJSON {
			return []byte("jettison: " + text + "\n")
		}
		var line bytes.Buffer
		slog.New(slog.NewJSONHandler(&line, nil)).Warn(text)
		return line.Bytes()
	}
}
