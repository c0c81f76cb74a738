// Command bridges runs many bridges in one process, each with its own connection: a cheap
// simulation of a thousand nodes. It reads a JSON array of the bridges' settings from stdin, and
// ends with stdin.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"jettison/internal/bridge"
)

// one is one bridge.
type one struct {
	Node   string // the node that its token is bound to
	Token  string
	Socket string // of its agent
	Host   string // of the API server
	CA     []byte
}

func main() {
	if err := run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "bridges:", err)
		os.Exit(1)
	}
}

func run(in io.Reader) error {
	var all []one
	if err := json.NewDecoder(in).Decode(&all); err != nil {
		return fmt.Errorf("read the bridges' settings: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var bridges sync.WaitGroup
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, b := range all {
		dialer := net.Dialer{Timeout: 30 * time.Second}
		o := bridge.Options{
			Node: b.Node, Socket: b.Socket, Version: "test", EvictedStatus: true, LeaseNamespace: "jettison-system",
			TransitionPeriod: 5 * time.Minute, Log: log.With("node", b.Node), API: &rest.Config{
				Host: b.Host, BearerToken: b.Token, TLSClientConfig: rest.TLSClientConfig{CAData: b.CA},
				Dial: dialer.DialContext, // else all would share one connection
			},
		}
		bridges.Go(func() {
			if err := bridge.Run(ctx, o); err != nil {
				log.Error("bridge ended", "node", o.Node, "error", err)
			}
		})
	}
	_, err := io.Copy(io.Discard, in)
	cancel()
	bridges.Wait()
	return err
}
