// SPDX-License-Identifier: Apache-2.0
//
// The first case of `sidestep bench sim`, in ns-3: NewReno flows through one bottleneck.
//
//   l1..lN ── L ── R ── r1..rN      1 Gbit/s everywhere, 1 ms to each host, 10 ms between the routers
//
// As in ours a packet takes 1500 bytes on the wire, by a payload that makes up for smaller headers (see PAYLOAD). SACK is on,
// every second segment is acknowledged, an ACK waits for 40 ms at most, the RTO is at least 200 ms, the initial window is
// 10. The bottleneck's queue is the device's, one bandwidth-delay product in bytes and drop-tail; ns-3's traffic control
// would put a second queue before it and is removed.
//
// TcpLinuxReno is NewReno whose window grows by what was acknowledged (RFC 3465), as ours and Linux's; ns-3's TcpNewReno
// grows once an ACK, half as fast with delayed ACKs, loses less often and has a queue that is 13 % longer.
// ClassicRecovery, as PrrRecovery (ns-3's default) is another algorithm than RFC 6675.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <sys/resource.h>

#include <cstdio>
#include <vector>

using namespace ns3;

namespace {

// IPv4's header is 20 bytes shorter than IPv6's and the device adds 2 of PPP: with 18 bytes more of payload a packet takes
// as long on the wire as ours, 1500 bytes. Goodput is counted in segments of ours.
constexpr uint32_t PAYLOAD = 1428 + 18;
constexpr double OURS = 1428.0;

uint64_t hops = 0;
double queueIntegral = 0.0;
double queueSince = 0.0;
uint32_t queueBytes = 0;
double warmupEnd = 0.0;

void Received(Ptr<const Packet>)
{
    ++hops;
}

void QueueChanged(uint32_t, uint32_t bytes)
{
    const double now = Simulator::Now().GetSeconds();
    if (now > warmupEnd) {
        queueIntegral += queueBytes * (now - std::max(queueSince, warmupEnd));
    }
    queueSince = now;
    queueBytes = bytes;
}

double CpuSeconds()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6;
}

void Link(Ptr<Node> a, Ptr<Node> b, const char* delay, const char* queue, Ipv4AddressHelper& addresses, NetDeviceContainer& devices)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    link.SetChannelAttribute("Delay", StringValue(delay));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(queue));
    devices = link.Install(a, b);
    // Traffic control comes with the address; it goes before there is any traffic.
    addresses.Assign(devices);
    TrafficControlHelper().Uninstall(devices);
    addresses.NewNetwork();
    for (uint32_t i = 0; i < 2; ++i) {
        devices.Get(i)->TraceConnectWithoutContext("PhyRxEnd", MakeCallback(&Received));
    }
}

}  // namespace

int main(int argc, char** argv)
{
    uint32_t flows = 32;
    double seconds = 20.0;
    uint32_t seed = 1;
    CommandLine command;
    command.AddValue("flows", "how many", flows);
    command.AddValue("seconds", "how long, of which a quarter is warm-up", seconds);
    command.AddValue("seed", "from which random numbers follow", seed);
    command.Parse(argc, argv);
    RngSeedManager::SetSeed(seed);
    warmupEnd = seconds / 4.0;

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpLinuxReno::GetTypeId()));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(PAYLOAD));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(60000 * PAYLOAD));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(60000 * PAYLOAD));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));

    NodeContainer routers(2);
    NodeContainer left(flows);
    NodeContainer right(flows);
    InternetStackHelper stack;
    stack.Install(routers);
    stack.Install(left);
    stack.Install(right);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    NetDeviceContainer devices;
    // 24 ms at 1 Gbit/s.
    Link(routers.Get(0), routers.Get(1), "10ms", "3000000B", addresses, devices);
    DynamicCast<PointToPointNetDevice>(devices.Get(0))->GetQueue()->TraceConnectWithoutContext("BytesInQueue", MakeCallback(&QueueChanged));
    std::vector<Ptr<PacketSink>> sinks;
    Ptr<UniformRandomVariable> random = CreateObject<UniformRandomVariable>();
    for (uint32_t i = 0; i < flows; ++i) {
        Link(left.Get(i), routers.Get(0), "1ms", "100000000B", addresses, devices);
        Link(right.Get(i), routers.Get(1), "1ms", "100000000B", addresses, devices);
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 7000));
        sinks.push_back(DynamicCast<PacketSink>(sink.Install(right.Get(i)).Get(0)));
        Ipv4Address to = right.Get(i)->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(to, 7000));
        source.SetAttribute("SendSize", UintegerValue(PAYLOAD));
        source.Install(left.Get(i)).Start(Seconds(random->GetValue(0.0, 0.1)));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    std::vector<uint64_t> before(flows, 0);
    Simulator::Schedule(Seconds(warmupEnd), [&] {
        for (uint32_t i = 0; i < flows; ++i) {
            before[i] = sinks[i]->GetTotalRx();
        }
    });
    Simulator::Stop(Seconds(seconds));
    const double begun = CpuSeconds();
    Simulator::Run();
    const double cpu = CpuSeconds() - begun;
    QueueChanged(0, queueBytes);
    double sum = 0.0;
    double squares = 0.0;
    for (uint32_t i = 0; i < flows; ++i) {
        const double bytes = (sinks[i]->GetTotalRx() - before[i]) * OURS / PAYLOAD;
        sum += bytes;
        squares += bytes * bytes;
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("{\"name\":\"dumbbell-%u\",\"value\":%.0f,\"unit\":\"packet-hops/CPU-s\",\"cpu_s\":%.2f,\"peak_rss_bytes\":%ld,"
                "\"traversals\":%lu,\"goodput_mbps\":%.2f,\"mean_queue_bytes\":%.0f,\"fairness\":%.3f}\n",
                flows, hops / cpu, cpu, usage.ru_maxrss * 1024L, hops, sum * 8e-6 / (seconds - warmupEnd),
                queueIntegral / (seconds - warmupEnd), sum * sum / (flows * squares));
    Simulator::Destroy();
    return 0;
}
