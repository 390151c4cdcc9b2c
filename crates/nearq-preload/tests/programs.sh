#!/bin/bash
# Real programs under the preload: crates/nearq-preload/tests/programs.sh LIBRARY
#
# Each program does its usual work, with several threads, and the results are compared: of compressors with the input, of servers with what
# they were given, of interpreters with the expected output. A missing program is installed if that is possible (root, apt-get); otherwise a
# line says what was skipped. Servers listen on sockets in a directory of their own. Ends with 1 if anything was wrong.
set -u
library=$(readlink -f "${1:?the library}")
here=$(mktemp -d)
trap 'stop; rm -rf "$here"' EXIT
wrong=0
server=

# shellcheck source=.ci/packages.sh
source "$(dirname "$(readlink -f "$0")")/../../../.ci/packages.sh"

# preloaded SECONDS COMMAND...: runs it with a time limit, and with the report kept apart.
preloaded() {
    local seconds=$1
    shift
    ${instead:-} timeout "$seconds" env LD_PRELOAD="$library${also:+:$also}" NEARQ_PRELOAD_STATISTICS=1 "$@" 2>>"$here/reports"
}

# serve SECONDS COMMAND...: the same in the background, in place of the shell that would run it, so that killing $server kills the server.
serve() {
    instead=exec preloaded "$@" >/dev/null &
    server=$!
}

# outcome NAME STATUS
outcome() {
    if [ "$2" = 0 ]; then
        echo "ok: $1$(sed -n 's/^nearq: \([^,]*\),.*\(contended [0-9]*\), in turn \([0-9]*\).*/; \1 \2/p' "$here/reports" | sort -u | tail -n 2 | tr -d '\n')"
    else
        echo "wrong: $1 ends with $2"
        tail -n 20 "$here/reports"
        wrong=1
    fi
    : >"$here/reports"
}

stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null
        wait "$server" 2>/dev/null
        server=
    fi
}

# until_there SOCKET: waits until a server has bound its socket there. (Ports of this machine may be taken by others at any moment.)
until_there() {
    for _ in $(seq 300); do
        [ -S "$1" ] && return
        sleep 0.1
    done
    return 1
}

# ---- compressors ----------------------------------------------------------------------------------------------------------

head -c 24000000 /dev/urandom | base64 >"$here/data"

round_trip() {
    local name=$1 pack=$2 unpack=$3
    # shellcheck disable=SC2086 # several words
    preloaded 300 $pack <"$here/data" >"$here/packed" && preloaded 300 $unpack <"$here/packed" >"$here/unpacked" \
        && cmp "$here/unpacked" "$here/data"
    outcome "$name" $?
}

has xz xz-utils "xz under the preload" && round_trip "xz, 2 threads" "xz -T2 -1 --block-size=2MiB -c" "xz -dc -T2"
has pigz pigz "pigz under the preload" && round_trip "pigz, 4 threads" "pigz -p4 -c" "pigz -dc"
has pbzip2 pbzip2 "pbzip2 under the preload" && round_trip "pbzip2, 4 threads" "pbzip2 -p4 -1 -c" "pbzip2 -dc -p4"

preloaded 120 sort --parallel=4 -S 8M "$here/data" -o "$here/sorted" && sort -c "$here/sorted"
outcome "sort, 4 threads" $?

# ---- torture --------------------------------------------------------------------------------------------------------------

if has stress-ng stress-ng "stress-ng under the preload"; then
    preloaded 120 stress-ng --mutex 4 --timeout 5s >/dev/null
    outcome "stress-ng --mutex 4" $?
fi

# ---- servers --------------------------------------------------------------------------------------------------------------

# Its threads look for work without ever sleeping: no more of them than the smallest machine has CPUs.
redis() {
    local at=$here/redis saved
    serve 300 redis-server --port 0 --unixsocket "$at" --io-threads 2 --io-threads-do-reads yes --dir "$here" --save '' --daemonize no
    until_there "$at" || return
    preloaded 200 redis-benchmark -s "$at" --threads 2 -c 40 -n 5000 -t set,get,lpush,lrange_100 -q >/dev/null || return
    preloaded 200 redis-benchmark -s "$at" --threads 2 -c 40 -n 5000 -q incr counted >/dev/null || return
    [ "$(redis-cli -s "$at" get counted)" = 5000 ] || return
    # A child of the server writes the file, from a process of several threads. Until it ends, the status is that of the previous one.
    [ "$(redis-cli -s "$at" save)" = OK ] && redis-cli -s "$at" bgsave >/dev/null || return
    for _ in $(seq 1000); do
        saved=$(redis-cli -s "$at" info persistence)
        [[ $saved == *rdb_bgsave_in_progress:1* ]] || break
        sleep 0.1
    done
    [[ $saved == *rdb_bgsave_in_progress:0* && $saved == *rdb_last_bgsave_status:ok* ]] || return
    redis-cli -s "$at" shutdown nosave
    wait "$server"
}
if has redis-server redis-server "redis-server under the preload" && has redis-benchmark redis-tools "redis-benchmark under the preload"; then
    redis
    outcome "redis-server, 2 threads, under redis-benchmark" $?
    stop
fi

cat >"$here/memcached.py" <<'PYTHON'
import socket, sys, threading, time
wrong = []
def connected():
    for _ in range(300):
        s = socket.socket(socket.AF_UNIX)
        try: s.connect(sys.argv[1]); return s
        except ConnectionRefusedError: s.close(); time.sleep(0.1) # bound, and does not listen yet
    sys.exit("memcached does not listen")
def client(me):
    s = connected(); f = s.makefile("rwb")
    for i in range(3000):
        key, value = b"%d-%d" % (me, i % 50), b"x" * (i % 300) + b"%d" % i
        f.write(b"set %s 0 0 %d\r\n%s\r\nget %s\r\nincr all 1\r\n" % (key, len(value), value, key)); f.flush()
        answers = [f.readline() for _ in range(5)]
        if answers[0] != b"STORED\r\n" or answers[2] != value + b"\r\n": wrong.append(answers)
with connected() as s:
    s.sendall(b"set all 0 0 1\r\n0\r\n"); s.recv(100)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    s.sendall(b"get all\r\n")
    if b"\r\n24000\r\n" not in s.recv(100): wrong.append("count")
sys.exit(bool(wrong) and repr(wrong[:3]))
PYTHON
memcached_works() {
    local at=$here/memcached user=()
    [ "$(id -u)" = 0 ] && user=(-u root) # it needs the option, and no other user may write in this directory
    serve 300 memcached -t 4 -s "$at" "${user[@]}"
    until_there "$at" && preloaded 200 python3 "$here/memcached.py" "$at"
}
if has memcached memcached "memcached under the preload" && has python3 python3 "python3 under the preload"; then
    memcached_works
    outcome "memcached, 4 threads" $?
    stop
fi

# ---- interpreters ---------------------------------------------------------------------------------------------------------

cat >"$here/threads.py" <<'PYTHON'
import concurrent.futures as cf, hashlib, multiprocessing, os, queue, sqlite3, subprocess, sys, threading, time
q, out, lock, total = queue.Queue(5), [], threading.Lock(), 0
def work():
    global total
    while (item := q.get()) is not None:
        with lock: total += item
workers = [threading.Thread(target=work) for _ in range(6)]
[w.start() for w in workers]
for i in range(20000): q.put(i)
for _ in workers: q.put(None)
[w.join() for w in workers]
assert total == sum(range(20000)), total
began = time.monotonic()
assert not threading.Event().wait(0.2) and time.monotonic() - began >= 0.2
with cf.ThreadPoolExecutor(8) as pool:
    one = hashlib.sha256(b"x" * 3000000).hexdigest()
    assert all(d == one for d in pool.map(lambda _: hashlib.sha256(b"x" * 3000000).hexdigest(), range(64)))
with multiprocessing.get_context("fork").Pool(4) as pool:
    assert sum(pool.map(abs, range(-1000, 0))) == 500500
assert subprocess.run(["sh", "-c", "exit 7"]).returncode == 7
path = os.path.join(sys.argv[1], "db")
with sqlite3.connect(path) as db: db.execute("create table t(a, b)")
def write(me):
    db = sqlite3.connect(path, timeout=120)
    for i in range(100):
        with db: db.execute("insert into t values(?, ?)", (me, i))
    db.close()
threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
# One connection for all, whose own mutex keeps them apart.
db = sqlite3.connect(path, check_same_thread=False)
def read():
    for _ in range(300): assert db.execute("select count(*) from t").fetchone() == (400,)
threads = [threading.Thread(target=read) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
PYTHON
if has python3 python3 "python3 under the preload"; then
    preloaded 300 python3 "$here/threads.py" "$here"
    outcome "python3: threads, queues, events, pools, forks, sqlite" $?
fi

# libcrypto's algorithms, stores of certificates and random numbers are behind its reader-writer locks.
cat >"$here/crypto.py" <<'PYTHON'
import hashlib, hmac, secrets, ssl, threading
def known(name): # some are in parts of libcrypto that are not loaded
    try: return hashlib.new(name, usedforsecurity=False).digest_size > 0
    except ValueError: return False
names = [name for name in sorted(hashlib.algorithms_available) if known(name)]
def digests():
    return [hashlib.new(name, b"x" * 100, usedforsecurity=False).hexdigest() for name in names] + [hmac.digest(b"k", b"x", "sha256").hex()]
expected, wrong = digests(), []
def work():
    for i in range(60):
        if digests() != expected: wrong.append(i)
        hashlib.scrypt(b"a", salt=b"b", n=16, r=1, p=1)
        secrets.token_bytes(32)
        if i % 20 == 0: ssl.create_default_context()
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not wrong, wrong
PYTHON
if has python3 python3 "python3 under the preload"; then
    preloaded 200 python3 "$here/crypto.py"
    outcome "python3: digests, certificates and random numbers of libcrypto" $?
fi

cat >"$here/shared.cc" <<'CPP'
#include <chrono>
#include <iostream>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>
int main() {
    std::shared_timed_mutex timed;
    std::shared_mutex lock;
    std::map<int, long> counts;
    std::vector<std::thread> threads;
    long wrong = 0, taken = 0;
    for (int me = 0; me < 8; me++)
        threads.emplace_back([&, me] {
            for (int i = 0; i < 200000; i++) {
                if (i % 10 == me % 10) {
                    std::unique_lock<std::shared_mutex> writes(lock);
                    counts[me] += 1;
                    counts[-1] += 1;
                } else {
                    std::shared_lock<std::shared_mutex> reads(lock);
                    long sum = 0;
                    for (auto &[key, count] : counts) sum += key < 0 ? -count : count;
                    if (sum != 0) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
                }
                if (i % 1000 == 0 && timed.try_lock_for(std::chrono::milliseconds(50))) {
                    taken++;
                    timed.unlock();
                }
            }
        });
    for (auto &thread : threads) thread.join();
    std::cout << counts[-1] << " " << wrong << " " << (taken > 0) << std::endl;
}
CPP
if command -v c++ >/dev/null; then
    c++ -std=c++17 -O1 -pthread "$here/shared.cc" -o "$here/shared" 2>>"$here/reports" && [ "$(preloaded 200 "$here/shared")" = "160000 0 1" ]
    outcome "C++: std::shared_mutex" $?
else
    skip "std::shared_mutex under the preload" "there is no c++" "apt-get install g++"
fi

if has sqlite3 sqlite3 "sqlite3 under the preload"; then
    answer=$(preloaded 100 sqlite3 "$here/other" 'pragma threads=4; create table t as with recursive n(i) as (select 1 union all select i+1 from n where i<300000) select abs(random()) r, i from n; create index x on t(r); select sum(i) from t; pragma integrity_check;' | tr '\n' ' ')
    [ "$answer" = "4 45000150000 ok " ]
    outcome "sqlite3, sorting by several threads" $?
fi

cat >"$here/Threads.java" <<'JAVA'
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.*;
public class Threads {
    static int count;
    public static void main(String[] arguments) throws Exception {
        Object monitor = new Object();
        ReentrantLock lock = new ReentrantLock();
        Condition turn = lock.newCondition();
        int[] next = {0}, locked = {0};
        ExecutorService pool = Executors.newFixedThreadPool(8);
        CountDownLatch done = new CountDownLatch(8);
        for (int t = 0; t < 8; t++) {
            final int me = t;
            pool.submit(() -> {
                for (int i = 0; i < 20000; i++) synchronized (monitor) { count++; if (i % 1000 == 0) monitor.wait(1); }
                for (int i = 0; i < 300; i++) {
                    lock.lock();
                    try { while (next[0] != me) turn.await(); next[0] = (me + 1) % 8; locked[0]++; turn.signalAll(); } finally { lock.unlock(); }
                }
                byte[][] garbage = new byte[1000][];
                for (int i = 0; i < 200000; i++) garbage[i % 1000] = new byte[i % 2000];
                done.countDown();
                return null;
            });
        }
        boolean ended = done.await(200, TimeUnit.SECONDS);
        pool.shutdown();
        long began = System.nanoTime();
        Thread.sleep(50);
        System.out.println(ended + " " + count + " " + locked[0] + " " + (System.nanoTime() - began >= 50_000_000));
    }
}
JAVA
if has java default-jre-headless "java under the preload"; then
    # The compiler in front of it is not in every installation.
    if command -v javac >/dev/null; then
        [ "$(cd "$here" && preloaded 250 java Threads.java)" = "true 160000 2400 true" ]
        outcome "java: monitors, locks, conditions, collection" $?
    else
        preloaded 60 java -version 2>/dev/null
        outcome "java -version" $?
        skip "java: monitors, locks, conditions, collection under the preload" "there is no javac" "apt-get install default-jdk-headless"
    fi
fi

cat >"$here/main.go" <<'GO'
package main

// #include <pthread.h>
// static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
// static long count;
// static void add(void) { pthread_mutex_lock(&mutex); count++; pthread_mutex_unlock(&mutex); }
// static long get(void) { return count; }
import "C"
import ("fmt"; "runtime"; "sync")

func main() {
	var all sync.WaitGroup
	for i := 0; i < 32; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			runtime.LockOSThread()
			for j := 0; j < 5000; j++ { C.add() }
		}()
	}
	all.Wait()
	fmt.Println(C.get())
}
GO
if command -v go >/dev/null && command -v cc >/dev/null; then
    (cd "$here" && GOFLAGS=-mod=mod GO111MODULE=off GOCACHE="$here/cache" CGO_ENABLED=1 go build -o with-c main.go) >>"$here/reports" 2>&1 \
        && [ "$(preloaded 100 "$here/with-c")" = 160000 ]
    outcome "a Go program with C" $?
else
    skip "a Go program with C under the preload" "there is no go, or no cc" "apt-get install golang gcc"
fi

# ---- other allocators -----------------------------------------------------------------------------------------------------

for allocator in jemalloc.so.2:libjemalloc2 tcmalloc_minimal.so.4:libtcmalloc-minimal4; do
    name=${allocator%%:*}
    also=$(ldconfig -p | sed -n "s/.*lib$name .* => //p" | head -n 1)
    if [ -n "$also" ] && command -v python3 >/dev/null; then
        rm -f "$here/db"
        preloaded 300 env PYTHONMALLOC=malloc python3 "$here/threads.py" "$here"
        outcome "python3 with lib$name" $?
    else
        skip "lib$name under the preload" "it is not installed" "apt-get install ${allocator##*:}"
    fi
    also=
done

exit $wrong
