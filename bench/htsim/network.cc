// SPDX-License-Identifier: Apache-2.0
//
// A case of `sidestep bench sim` in htsim: reads what `sidestep bench sim --case CASE --describe` prints, and runs it.
//
// Each arc is htsim's drop-tail queue and a pipe. The flows are htsim's TCP (NewReno, an ACK for each segment, no SACK) or its
// MPTCP, coupled by COUPLED_INC, which is LIA. A packet takes 1500 bytes, as ours. As ours, the slow-start threshold is
// unlimited at first. htsim's ACK has 40 bytes, ours has 72.
//
// htsim has no host jitter. With --jitter a stage before each host's first queue delays packets at random and keeps their
// order, as ours does. It costs an event for each packet that a host sends.

#include "eventlist.h"
#include "mtcp.h"
#include "pipe.h"
#include "queue.h"
#include "tcp.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

// The least retransmission timeout; `run` makes htsim's TCP use it in the place of its constant.
simtime_picosec sidestep_min_rto = timeFromMs(250);

namespace {

uint64_t hops = 0;

class CountingPipe : public Pipe {
public:
    CountingPipe(simtime_picosec delay, EventList& events) : Pipe(delay, events) {}
    void doNextEvent() override
    {
        ++hops;
        Pipe::doNextEvent();
    }
};

uint64_t Mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// Delays packets at random, and keeps their order.
class Jitter : public EventSource, public PacketSink {
public:
    Jitter(uint64_t arc, simtime_picosec limit, EventList& events) : EventSource(events, "jitter"), _arc(arc), _limit(limit) {}

    void receivePacket(Packet& packet) override
    {
        const simtime_picosec random = (unsigned __int128)Mix(_arc << 32 | ++_count) * _limit >> 64;
        _last = std::max(eventlist().now() + random, _last);
        if (_waiting.empty()) {
            eventlist().sourceIsPending(*this, _last);
        }
        _waiting.emplace_back(_last, &packet);
    }

    void doNextEvent() override
    {
        Packet* packet = _waiting.front().second;
        _waiting.pop_front();
        if (!_waiting.empty()) {
            eventlist().sourceIsPending(*this, _waiting.front().first);
        }
        packet->sendOn();
    }

    const string& nodename() override { return _name; }

private:
    uint64_t _arc;
    uint64_t _count = 0;
    simtime_picosec _limit;
    simtime_picosec _last = 0;
    std::deque<std::pair<simtime_picosec, Packet*>> _waiting;
    string _name = "jitter";
};

double CpuSeconds()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6;
}

struct Arc {
    Queue* queue;
    CountingPipe* pipe;
};

}  // namespace

int main(int argc, char** argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: network FILE SECONDS [--jitter]\n");
        return 2;
    }
    const double seconds = atof(argv[2]);
    const bool jittered = argc > 3 && strcmp(argv[3], "--jitter") == 0;
    // htsim reports timeouts and starts; that would be measured, too.
    std::cout.setstate(std::ios::failbit);

    Packet::set_packet_size(1500);
    EventList& events = EventList::getTheEventList();
    EventList::setEndtime(timeFromSec(seconds));
    std::unique_ptr<TcpRtxTimerScanner> scanner;

    std::ifstream file(argv[1]);
    std::string line;
    std::vector<Arc> arcs;
    std::map<uint64_t, Jitter*> jitters;
    std::vector<TcpSink*> sinks;
    std::vector<Queue*> queues;
    simtime_picosec jitter = 0;
    simtime_picosec start = 0;
    MultipathTcpSrc* connection = nullptr;
    MultipathTcpSink* end = nullptr;
    Route* data = nullptr;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string what;
        uint64_t a = 0, b = 0, c = 0;
        words >> what;
        if (what == "jitter") {
            words >> a;
            jitter = a * 1000;
        } else if (what == "min_rto") {
            words >> a;
            sidestep_min_rto = a * 1000;
            // htsim looks at its timers in steps: every 10 ms where the timeout is 200 ms.
            scanner = std::make_unique<TcpRtxTimerScanner>(sidestep_min_rto / 20, events);
        } else if (what == "arc") {
            words >> a >> b >> c;
            arcs.push_back({new Queue(a, c, events, nullptr), new CountingPipe(b * 1000, events)});
            queues.push_back(arcs.back().queue);
        } else if (what == "flow") {
            words >> a >> b;
            start = a * 1000;
            connection = nullptr;
            if (b > 1) {
                connection = new MultipathTcpSrc(COUPLED_INC, events, nullptr);
                end = new MultipathTcpSink(events);
                connection->connect(end);
            }
        } else if (what == "route") {
            Route* route = new Route();
            bool first = true;
            while (words >> a) {
                if (first && jittered) {
                    Jitter*& stage = jitters[a];
                    if (!stage) {
                        stage = new Jitter(a, jitter, events);
                    }
                    route->push_back(stage);
                }
                first = false;
                route->push_back(arcs.at(a).queue);
                route->push_back(arcs.at(a).pipe);
            }
            if (!data) {
                data = route;
                continue;
            }
            TcpSrc* source = new TcpSrc(nullptr, nullptr, events);
            TcpSink* sink = new TcpSink();
            source->set_ssthresh(0xffffffff);
            data->push_back(sink);
            route->push_back(source);
            if (connection) {
                connection->addSubflow(source);
                end->addSubflow(sink);
            }
            scanner->registerTcp(*source);
            source->connect(*data, *route, *sink, start);
            sinks.push_back(sink);
            data = nullptr;
        } else {
            fprintf(stderr, "`%s` is unknown\n", what.c_str());
            return 2;
        }
    }

    const double before = CpuSeconds();
    const simtime_picosec warmup = timeFromSec(seconds / 4.0);
    while (EventList::now() < warmup && EventList::doNextEvent()) {
    }
    uint64_t acked = 0;
    for (TcpSink* sink : sinks) {
        acked -= sink->_cumulative_ack;
    }
    while (EventList::doNextEvent()) {
    }
    const double cpu = CpuSeconds() - before;
    for (TcpSink* sink : sinks) {
        acked += sink->_cumulative_ack;
    }
    uint64_t drops = 0;
    for (Queue* queue : queues) {
        drops += queue->num_drops();
    }
    // Of 1500 bytes ours carry 1428.
    const double goodput = acked * (1428.0 / 1500.0) * 8e-6 / (seconds * 0.75);
    printf("{\"value\": %.0f, \"cpu_s\": %.3f, \"traversals\": %lu, \"goodput_mbps\": %.1f, \"drops\": %lu}\n", hops / cpu, cpu, hops,
           goodput, drops);
    return 0;
}
