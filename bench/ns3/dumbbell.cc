// SPDX-License-Identifier: Apache-2.0
//
// Long flows through one bottleneck, in ns-3. Without options it is the first case of `sidestep bench sim`.
//
//   l1..lN ── L ── R ── r1..rN      1 Gbit/s everywhere, 1 ms to each host, 10 ms between the routers

#include "common.h"

using namespace sidestep;

namespace {

double queueIntegral = 0.0;
double queueSince = 0.0;
double queueBytes = 0.0;
double warmupEnd = 0.0;
uint32_t deviceBytes = 0;
uint32_t markerBytes = 0;

void QueueChanged()
{
    const double now = Simulator::Now().GetSeconds();
    if (now > warmupEnd) {
        queueIntegral += queueBytes * (now - std::max(queueSince, warmupEnd));
    }
    queueSince = now;
    queueBytes = deviceBytes + markerBytes;
}

void DeviceChanged(uint32_t, uint32_t bytes)
{
    deviceBytes = bytes;
    QueueChanged();
}

void MarkerChanged(uint32_t, uint32_t bytes)
{
    markerBytes = bytes;
    QueueChanged();
}

uint64_t Marks(const Dumbbell& net)
{
    return net.marker ? net.marker->GetStats().nTotalMarkedPackets : 0;
}

}  // namespace

int main(int argc, char** argv)
{
    Dumbbell net;
    double seconds = 20.0;
    double minRto = 0.2;
    uint32_t seed = 1;
    std::string tcp = "TcpLinuxReno";
    CommandLine command;
    command.AddValue("flows", "how many", net.hosts);
    command.AddValue("seconds", "how long, of which a quarter is warm-up", seconds);
    command.AddValue("seed", "from which random numbers follow", seed);
    command.AddValue("tcp", "congestion control", tcp);
    command.AddValue("rate", "of the bottleneck", net.rate);
    command.AddValue("queue", "of the bottleneck, in bytes", net.queueBytes);
    command.AddValue("mark", "length of the queue, in packets, from which those that arrive are marked", net.mark);
    command.AddValue("loss", "probability with which the bottleneck loses a packet", net.loss);
    command.AddValue("rto", "least RTO, in seconds", minRto);
    command.Parse(argc, argv);
    RngSeedManager::SetSeed(seed);
    warmupEnd = seconds / 4.0;
    SetTcp(tcp, net.mark > 0, Seconds(minRto));
    const uint32_t flows = net.hosts;
    Build(net);

    DynamicCast<PointToPointNetDevice>(net.bottleneck.Get(0))
        ->GetQueue()
        ->TraceConnectWithoutContext("BytesInQueue", MakeCallback(&DeviceChanged));
    if (net.marker) {
        net.marker->TraceConnectWithoutContext("BytesInQueue", MakeCallback(&MarkerChanged));
    }
    std::vector<Ptr<PacketSink>> sinks;
    Ptr<UniformRandomVariable> random = CreateObject<UniformRandomVariable>();
    for (uint32_t i = 0; i < flows; ++i) {
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 7000));
        sinks.push_back(DynamicCast<PacketSink>(sink.Install(net.right.Get(i)).Get(0)));
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(AddressOf(net.right.Get(i)), 7000));
        source.SetAttribute("SendSize", UintegerValue(PAYLOAD));
        source.Install(net.left.Get(i)).Start(Seconds(random->GetValue(0.0, 0.1)));
    }

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
    QueueChanged();
    double sum = 0.0;
    double squares = 0.0;
    for (uint32_t i = 0; i < flows; ++i) {
        const double bytes = (sinks[i]->GetTotalRx() - before[i]) * OURS / PAYLOAD;
        sum += bytes;
        squares += bytes * bytes;
    }
    const double measured = seconds - warmupEnd;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("{\"name\":\"dumbbell-%u\",\"value\":%.0f,\"unit\":\"packet-hops/CPU-s\",\"cpu_s\":%.2f,\"peak_rss_bytes\":%ld,"
                "\"traversals\":%lu,\"goodput_mbps\":%.2f,\"mean_queue_bytes\":%.0f,\"fairness\":%.3f,\"marks_per_s\":%.1f}\n",
                flows, hops / cpu, cpu, usage.ru_maxrss * 1024L, hops, sum * 8e-6 / measured, queueIntegral / measured,
                sum * sum / (flows * squares), Marks(net) / seconds);
    Simulator::Destroy();
    return 0;
}
